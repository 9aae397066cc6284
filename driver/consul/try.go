package consul

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// A try is an Acquire that does not wait. It must not be queued and then refused
// (D6). So it reads the queue first, which costs no Raft commit, and creates
// its ticket only on condition that no ticket has been queued since that could
// block it. A Consul transaction can have a condition on the index of a key,
// but not on the index of a prefix. So the condition is on keys called guards.
//
// Every transaction that creates a ticket, of a waiter or of a try, changes or
// deletes the guard against tickets of its kind, shared or exclusive. A try
// reads, together with the queue, the guards against the kinds that can block
// it. If they are not there it makes them, in a transaction that reads both. If they
// still have the same index when its ticket is created, no such ticket was created in
// between, and the queue that it has read decides, since a ticket that leaves
// blocks nobody. Otherwise it reads again.
//
// Anybody may delete a guard at any time: a new guard has another index. Guards
// are few, whatever the number of names, and end with the session that made
// them. An Acquire that waits pays nothing for them, because deleting a key that
// is not there writes nothing.

// Look implements kvqueue.Store with one read.
func (s *store) Look(ctx context.Context, r *driver.Request) (any, error) {
	pairs, err := s.ask(ctx, s.looks(r.Name)...)
	if err != nil {
		return nil, err
	}
	guards, err := s.admit(r, pairs)
	if err != nil {
		return nil, err
	}
	return guards, nil
}

// looks returns the operations that read the guards of a name, and its queue.
func (s *store) looks(name string) []op {
	return []op{keyOp(api.KVGetTree, s.keys.guards(name)), keyOp(api.KVGetTree, s.keys.queue(name))}
}

// admit returns the guards that were read, by key, or ErrNotAcquired if the queue blocks
// the request.
func (s *store) admit(r *driver.Request, pairs api.KVPairs) (map[string]uint64, error) {
	guards := make(map[string]uint64, 2)
	for len(pairs) > 0 && strings.HasPrefix(pairs[0].Key, s.keys.guards(r.Name)) {
		guards[pairs[0].Key] = pairs[0].ModifyIndex
		pairs = pairs[1:]
	}
	queue, err := parseQueue(r.Name, pairs)
	if err != nil {
		return nil, err
	}
	if !driver.Grantable(append(kvqueue.Shown(queue), r.Ticket(0)), len(queue)) {
		return nil, driver.ErrNotAcquired
	}
	return guards, nil
}

// guarded adds a condition to the operations that create the ticket of a try: that its
// guards are as they were read. It also returns the operation that changes the guard of the
// ticket's own kind. If guards are missing, it makes them.
func (s *store) guarded(ctx context.Context, p *kvqueue.Put, ops []op) ([]op, op, error) {
	guards := p.If.(map[string]uint64)
	wanted := []string{s.keys.guard(p.Name, false)}
	if !p.Shared || p.Limit > 0 {
		wanted = append(wanted, s.keys.guard(p.Name, true))
	}
	guards, err := s.makeGuards(ctx, p, guards, wanted)
	if err != nil {
		return nil, op{}, err
	}
	for _, key := range wanted {
		ops = append(ops, indexOp(key, guards[key]))
	}
	own := s.keys.guard(p.Name, p.Shared)
	change := keyOp(api.KVDelete, own)
	if slices.Contains(wanted, own) { // it is there: for the next try this is cheaper than to make it anew
		change = keyOp(api.KVSet, own)
		change.KV.Value = []byte("used by " + p.ID) // Consul ignores a write that changes nothing
	}
	return ops, change, nil
}

// makeGuards makes those of the wanted guards that are missing, and reads the queue again
// in the same transaction: a guard that was read later might be deleted by then, again and
// again, if another name that has it is busy.
func (s *store) makeGuards(ctx context.Context, p *kvqueue.Put, guards map[string]uint64, wanted []string) (map[string]uint64, error) {
	var missing []op
	for _, key := range wanted {
		if _, ok := guards[key]; !ok {
			missing = append(missing, lockOp(key, p.Session, []byte("made by "+p.ID)))
		}
	}
	if len(missing) == 0 {
		return guards, nil
	}
	pairs, err := s.commit(ctx, append(missing, s.looks(p.Name)...)...)
	var refused *rollback
	switch {
	case errors.As(err, &refused) && refused.sessionOver():
		return nil, kvqueue.ErrSessionOver
	case refused != nil: // another client was faster
		return nil, kvqueue.ErrChanged
	case err != nil:
		return nil, err
	case len(pairs) < len(missing):
		return nil, errFiltered
	}
	return s.admit(p.Request, pairs[len(missing):])
}

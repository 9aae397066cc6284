package consul

import (
	"context"
	"errors"
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
// it. If they are not there it makes them and reads again. If they still have
// the same index when its ticket is created, no such ticket was created in
// between, and the queue that it has read decides, since a ticket that leaves
// blocks nobody. Otherwise it reads again.
//
// Anybody may delete a guard at any time: a new guard has another index. Guards
// are few, whatever the number of names, and end with the session that made
// them. An Acquire that waits pays nothing for them, because deleting a key that
// is not there writes nothing.

// Look implements kvqueue.Store with one read.
func (s *store) Look(ctx context.Context, r *driver.Request) (any, error) {
	prefix := s.keys.guards(r.Name)
	out, err := s.ask(s.exact(ctx), keyOp(api.KVGetTree, prefix), keyOp(api.KVGetTree, s.keys.queue(r.Name)))
	if err != nil {
		return nil, err
	}
	guards, pairs := make(map[string]uint64, 2), pairsOf(out.Results)
	for len(pairs) > 0 && strings.HasPrefix(pairs[0].Key, prefix) {
		guards[pairs[0].Key] = pairs[0].ModifyIndex
		pairs = pairs[1:]
	}
	queue, err := parseQueue(r.Name, pairs)
	if err != nil {
		return nil, err
	}
	if !driver.Grantable(append(shown(queue), r.Ticket(0)), len(queue)) {
		return nil, driver.ErrNotAcquired
	}
	return guards, nil
}

// guarded adds a condition to the operations that create the ticket of a try: that its
// guards are as Look has read them. It also returns the operation that changes the guard
// of the ticket's own kind. ErrChanged says that guards were missing, and are made now.
func (s *store) guarded(ctx context.Context, p *kvqueue.Put, ops []op) ([]op, op, error) {
	guards := p.If.(map[string]uint64)
	wanted := []string{s.keys.guard(p.Name, false)}
	if !p.Shared || p.Limit > 0 {
		wanted = append(wanted, s.keys.guard(p.Name, true))
	}
	var missing []op
	for _, key := range wanted {
		if index, ok := guards[key]; ok {
			ops = append(ops, indexOp(key, index))
		} else {
			missing = append(missing, lockOp(key, p.Session, []byte("made by "+p.ID)))
		}
	}
	own := s.keys.guard(p.Name, p.Shared)
	change := keyOp(api.KVDelete, own)
	if _, ok := guards[own]; ok { // for the next try this is cheaper than to make it anew
		change = keyOp(api.KVSet, own)
		change.KV.Value = []byte("used by " + p.ID) // Consul ignores a write that changes nothing
	}
	if len(missing) == 0 {
		return ops, change, nil
	}
	_, err := s.commit(ctx, missing...)
	var refused *rollback
	switch {
	case errors.As(err, &refused) && refused.sessionOver():
		return nil, op{}, kvqueue.ErrSessionOver
	case err == nil || refused != nil: // or another client was faster
		return nil, op{}, kvqueue.ErrChanged
	}
	return nil, op{}, kvqueue.Refused(err) // the ticket has not been put yet
}

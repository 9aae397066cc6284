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
// its ticket only on condition that nobody has been queued since who could
// block it. A Consul transaction can be conditional on the index of one key
// only, not on that of a prefix: that key is a guard.
//
// Whoever is queued, waiting or by a try, changes or deletes the guard against
// tickets of its kind, shared or exclusive, in the transaction that creates its
// ticket. A try reads the guards against the kinds that can block it together
// with the queue; it makes them if they are not there, and reads again. If they
// still have the same index when its ticket is created, no such ticket was
// created in between, and what it has read decides: what leaves a queue blocks
// nobody. Else it reads again.
//
// That a guard is deleted, at any time and by anybody, is safe: a guard that is
// made anew has another index. Guards are few, whatever the number of names,
// and end with the session that made them. An Acquire that waits pays nothing
// for them: deleting a key that is not there writes nothing.

// Look implements kvqueue.Store: one read.
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

// guarded adds to the operations that create the ticket of a try the condition that
// its guards are as Look has read them, and returns how its own is changed.
// ErrChanged says that they had to be made.
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
	if _, ok := guards[own]; ok { // cheaper for the next try than to make it anew
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
	case err == nil || refused != nil: // or somebody else was faster
		return nil, op{}, kvqueue.ErrChanged
	}
	return nil, op{}, kvqueue.Refused(err) // the ticket was not asked for yet
}

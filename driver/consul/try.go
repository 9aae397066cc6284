package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
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

// tryOnce queues a ticket if it is granted with that. It returns the queue up to
// the ticket.
func (d *Driver) tryOnce(ctx context.Context, r driver.Request, k kind) (*ticket, []entry, error) {
	for {
		queue, guards, err := d.store.look(ctx, r.Name)
		if err != nil {
			return nil, nil, err
		}
		if t := d.found(r, queue); t != nil {
			return t, queue, nil
		}
		asked := append(tickets(queue), r.Ticket(0))
		if !driver.Grantable(asked, len(queue)) {
			return nil, nil, d.refuse(ctx, r)
		}
		t, err := d.attach(ctx, &ticket{name: r.Name, id: r.ID, shared: r.Shared}, k, d.since(r, fresh))
		if err != nil {
			return nil, nil, err
		}
		e := entry{pair: pair{Key: t.key, Session: t.first.id}, value: valueOf(r, k.ttl)}
		e, queue, err = d.store.putIf(ctx, r, e, guards)
		switch {
		case errors.Is(err, errChanged):
			continue
		case err != nil:
			return nil, nil, d.notCreated(t, err)
		}
		d.numbered(t, e)
		if !standing(queue, e.CreateIndex) { // somebody is queued who does not know of guards
			return nil, nil, d.refuse(ctx, r)
		}
		return t, queue, nil
	}
}

// found returns the ticket if an earlier request has created it, whose answer was
// lost.
func (d *Driver) found(r driver.Request, queue []entry) *ticket {
	t := d.ticketOf(r.ID)
	for _, e := range queue {
		if t != nil && e.ID == r.ID && standing(queue, e.CreateIndex) {
			d.numbered(t, e)
			return t
		}
	}
	return nil
}

// refuse makes sure that a try that is refused leaves no ticket, and that none
// comes late.
func (d *Driver) refuse(ctx context.Context, r driver.Request) error {
	if t := d.ticketOf(r.ID); t != nil && d.created(t) {
		if err := d.remove(ctx, r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return driver.ErrNotAcquired // failedAcquire forgets what was not created
}

// created tells whether t was created, or may be.
func (d *Driver) created(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.unsure || t.number > 0
}

// errChanged says that the guards of a try have changed, or were made.
var errChanged = errors.New("the queue has changed")

// look reads the queue of a name and its guards, exactly and at one index.
func (s *store) look(ctx context.Context, name string) ([]entry, map[string]pair, error) {
	prefix := s.keys.guards(name)
	pairs, err := s.trees(ctx, prefix, s.keys.queue(name))
	if err != nil {
		return nil, nil, err
	}
	guards := make(map[string]pair, 2)
	for len(pairs) > 0 && strings.HasPrefix(pairs[0].Key, prefix) {
		guards[pairs[0].Key] = pairs[0]
		pairs = pairs[1:]
	}
	queue, err := parseQueue(pairs)
	return queue, guards, err
}

// putIf creates a ticket if its guards are as they were read, and returns the
// queue as it then is: what is granted is decided by that, as for everybody.
// errChanged says that the guards are others, or had to be made.
func (s *store) putIf(ctx context.Context, r driver.Request, e entry, guards map[string]pair) (entry, []entry, error) {
	wanted := []string{s.keys.guard(r.Name, false)}
	if !r.Shared || r.Limit > 0 {
		wanted = append(wanted, s.keys.guard(r.Name, true))
	}
	ops := s.create(e)
	var missing []op
	for _, key := range wanted {
		if g, ok := guards[key]; ok {
			ops = append(ops, indexOp(g))
		} else {
			missing = append(missing, lockOp(key, e.Session, []byte("made by "+r.ID)))
		}
	}
	if len(missing) > 0 {
		return e, nil, s.makeGuards(ctx, missing)
	}
	own := s.keys.guard(r.Name, r.Shared)
	change := keyOp(api.KVDelete, own)
	if _, ok := guards[own]; ok { // cheaper for the next try than to make it anew
		change = keyOp(api.KVSet, own)
		change.KV.Value = []byte("used by " + r.ID) // Consul ignores a write that changes nothing
	}
	created, queue, err := s.created(ctx, r.Name, e, append(ops, change, keyOp(api.KVGetTree, s.keys.queue(r.Name))))
	if errors.As(err, new(*rollback)) && !errors.Is(err, errSession) {
		err = errChanged
	}
	return created, queue, err
}

// makeGuards makes guards that are missing, unless somebody else does.
func (s *store) makeGuards(ctx context.Context, missing []op) error {
	_, err := s.commit(ctx, missing...)
	var refused *rollback
	switch {
	case err == nil:
	case !errors.As(err, &refused):
		return notPut{err}
	case strings.Contains(refused.Error(), "invalid session"):
		return fmt.Errorf("%w: %w", errSession, err)
	}
	return errChanged
}

// notPut is an error before the request that would have created a ticket.
type notPut struct{ error }

func (e notPut) Unwrap() error { return e.error }

package consul

import (
	"context"
	"errors"
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
		line, guards, err := d.readGuarded(ctx, r)
		if err != nil {
			return nil, nil, err
		}
		if t, err := d.found(r, line); t != nil || err != nil {
			return t, line, err
		}
		asked := append(tickets(line), r.Ticket(0))
		if !driver.Grantable(asked, len(line)) {
			return nil, nil, d.refuse(ctx, r)
		}
		t, err := d.attach(ctx, &ticket{name: r.Name, id: r.ID, shared: r.Shared}, k, d.since(r, fresh))
		if err != nil {
			return nil, nil, err
		}
		line, err = d.commitTry(ctx, t, r, k, guards)
		var moved *rollback
		switch {
		case err == nil && standing(line, t.number):
			return t, line, nil
		case err == nil && line != nil: // somebody is queued who does not know of guards
			return nil, nil, d.refuse(ctx, r)
		case err != nil && (errors.Is(err, errSession) || !errors.As(err, &moved)):
			return nil, nil, err
		}
	}
}

// readGuarded reads the queue of a name and its guards, exactly and at one index.
func (d *Driver) readGuarded(ctx context.Context, r driver.Request) ([]entry, map[string]pair, error) {
	prefix := d.keys.guards(r.Name)
	pairs, err := d.store.trees(ctx, prefix, d.keys.line(r.Name))
	if err != nil {
		return nil, nil, err
	}
	guards := make(map[string]pair, 2)
	for len(pairs) > 0 && strings.HasPrefix(pairs[0].Key, prefix) {
		guards[pairs[0].Key] = pairs[0]
		pairs = pairs[1:]
	}
	line, err := parseLine(pairs)
	return line, guards, err
}

// found returns the ticket if an earlier request has created it, whose answer was
// lost.
func (d *Driver) found(r driver.Request, line []entry) (*ticket, error) {
	t := d.ticketOf(r.ID)
	if t == nil {
		return nil, nil
	}
	for _, e := range line {
		if e.ID == r.ID && standing(line, e.CreateIndex) {
			return t, d.numbered(t, e.pair)
		}
	}
	return nil, nil
}

// refuse makes sure that a try that is refused leaves no ticket, and that none
// comes late.
func (d *Driver) refuse(ctx context.Context, r driver.Request) error {
	if t := d.ticketOf(r.ID); t != nil && d.created(t) {
		if err := d.remove(ctx, r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	return driver.ErrNotAcquired // failedAcquire takes what was not created off the books
}

// created tells whether t was created, or may be.
func (d *Driver) created(t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.doubt || t.number > 0
}

// commitTry creates the ticket of a try if its guards are as they were read, and
// returns the queue as it then is: what is granted is decided by that, as for everybody. It
// returns nil, and no error, when it had to make guards.
func (d *Driver) commitTry(ctx context.Context, t *ticket, r driver.Request, k kind, guards map[string]pair) ([]entry, error) {
	name := d.keys.line(r.Name)
	wanted := []string{d.keys.guard(r.Name, false)}
	if !r.Shared || r.Limit > 0 {
		wanted = append(wanted, d.keys.guard(r.Name, true))
	}
	ops := []op{
		keyOp(api.KVCheckNotExists, d.keys.barred(t.home.id, r.ID)),
		lockOp(t.key, t.home.id, newValue(r, k.ttl)),
	}
	var missing []op
	for _, key := range wanted {
		if g, ok := guards[key]; ok {
			ops = append(ops, indexOp(g))
		} else {
			missing = append(missing, lockOp(key, t.home.id, []byte("made by "+r.ID)))
		}
	}
	if len(missing) > 0 {
		return nil, d.makeGuards(ctx, t, missing)
	}
	own := d.keys.guard(r.Name, r.Shared)
	change := keyOp(api.KVDelete, own)
	if _, ok := guards[own]; ok { // cheaper for the next try than to make it anew
		change = keyOp(api.KVSet, own)
		change.KV.Value = []byte("used by " + r.ID) // Consul ignores a write that changes nothing
	}
	pairs, err := d.writes.commit(ctx, name, append(ops, change, keyOp(api.KVGetTree, name))...)
	if err != nil {
		return nil, d.notJoined(t, err)
	}
	if err := d.numbered(t, pairs[0]); err != nil {
		return nil, err
	}
	tree := pairs[1:]
	for len(tree) > 0 && !strings.HasPrefix(tree[0].Key, name) {
		tree = tree[1:] // of the guards
	}
	return parseLine(tree)
}

// makeGuards makes guards that are missing, unless somebody else does.
func (d *Driver) makeGuards(ctx context.Context, t *ticket, missing []op) error {
	err := d.store.do(ctx, missing...)
	var refused *rollback
	switch {
	case !errors.As(err, &refused):
		return err
	case strings.Contains(refused.Error(), "invalid session"):
		d.bury(t.home)
		return errSession
	}
	return nil
}

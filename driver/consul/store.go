package consul

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// store is the kvqueue.Store.
type store struct {
	client   *api.Client
	opts     options
	keys     keyspace
	protocol *protocol.Check
	engine   *kvqueue.Engine

	writes  batcher       // of tickets
	seen    atomic.Uint64 // the highest index of an answer
	watches chan struct{} // one element for each queue with a query of its own
	shared  sharedWatch   // of the other queues
}

// Agree implements kvqueue.Store. It waits for the end of an election.
func (s *store) Agree(ctx context.Context, write bool) error {
	return s.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		for delay := 25 * time.Millisecond; ; delay = min(2*delay, time.Second) {
			found, err := s.version(ctx, write)
			if !s.Temporary(err) {
				return found, err
			}
			select {
			case <-time.After(delay):
			case <-ctx.Done():
				return "", err
			}
		}
	})
}

func (s *store) version(ctx context.Context, write bool) (string, error) {
	for {
		p, _, err := s.get(s.exact(ctx), s.keys.protocol())
		if err != nil || p == nil && !write {
			return "", err
		}
		if p != nil {
			return string(p.Value), nil
		}
		// Index 0 means only if the key is not there.
		_, err = s.commit(ctx, op{kvOp{Verb: api.KVCAS, Key: s.keys.protocol(), Value: []byte(s.protocol.Own())}})
		if !errors.As(err, new(*rollback)) { // otherwise another client was faster
			return s.protocol.Own(), err
		}
	}
}

// Class implements kvqueue.Store.
func (s *store) Class(r *driver.Request) (time.Duration, error) {
	ttl := max(r.TTL, r.MinHold, s.opts.minTTL)
	if ttl > maxTTL {
		return 0, fmt.Errorf("%w: TTL %v is more than Consul's longest session of %v", driver.ErrUnsupported, ttl, maxTTL)
	}
	return ttl, nil
}

// Open implements kvqueue.Store. Only its TTL ends a session. It has no health check, so
// the failure of the agent that was asked takes no lock away. It has no lock delay
// either: see the package comment.
func (s *store) Open(ctx context.Context, class time.Duration) (kvqueue.Session, error) {
	return s.open(ctx, class, api.SessionBehaviorDelete)
}

func (s *store) open(ctx context.Context, class time.Duration, behavior string) (kvqueue.Session, error) {
	in := map[string]any{
		"Name": s.opts.prefix, "TTL": class.String(), "Behavior": behavior, "LockDelay": "0s", "NodeChecks": []string{},
	}
	var out struct{ ID string }
	_, err := s.client.Raw().Write("/v1/session/create", in, &out, s.write(ctx))
	return kvqueue.Session{ID: out.ID, TTL: class}, err
}

// KeepAlive implements kvqueue.Store. A leader that has just been started or elected
// may answer that there is no such session, because it has not read its log yet. An exact
// read waits for that, but shows no session to a token that may not read it. So only the
// next answer proves it: such a token is refused if the session is there.
func (s *store) KeepAlive(ctx context.Context, session string) error {
	for ready := false; ; ready = true {
		var out []struct{ ID string }
		_, err := s.client.Raw().Write("/v1/session/renew/"+session, nil, &out, s.write(ctx))
		if err == nil && len(out) == 1 || err != nil && statusOf(err) != http.StatusNotFound {
			return err
		}
		if ready {
			return kvqueue.ErrSessionOver
		}
		switch there, _, err := s.client.Session().Info(session, s.exact(ctx)); {
		case err != nil:
			return err
		case there != nil:
			return errNotReady
		}
	}
}

// errNotReady says that a server does not know yet what it has on its disk.
var errNotReady = errors.New("the consul server is not ready: it does not know an existing session yet")

// End implements kvqueue.Store.
func (s *store) End(ctx context.Context, session string) error {
	_, err := s.client.Session().Destroy(session, s.write(ctx))
	return err
}

// Key implements kvqueue.Store.
func (s *store) Key(name, session string, slot int, _ bool) string {
	return s.keys.ticket(name, session, slot)
}

// Put implements kvqueue.Store: one transaction, which creates the ticket and
// returns the queue as it then is.
//
// The request may be delayed by an agent that has no leader, or on a connection that is
// cut, and arrive long after its caller has given up. Then the tombstone of Withdraw
// prevents it. Put also changes the guard against tickets of its kind: see try.go.
func (s *store) Put(ctx context.Context, p *kvqueue.Put) (kvqueue.Placed, error) {
	ops := []op{
		keyOp(api.KVCheckNotExists, s.keys.tombstone(p.Session, p.ID)),
		keyOp(api.KVCheckNotExists, p.Key), // a key that is locked anew keeps its CreateIndex
		lockOp(p.Key, p.Session, encode(p.Request, p.Class)),
	}
	change := keyOp(api.KVDelete, s.keys.guard(p.Name, p.Shared))
	if p.If != nil {
		var err error
		if ops, change, err = s.guarded(ctx, p, ops); err != nil {
			return kvqueue.Placed{}, kvqueue.Refused(err) // the ticket has not been put yet
		}
	}
	if ops = append(ops, change); !p.Brief {
		ops = append(ops, keyOp(api.KVGetTree, s.keys.queue(p.Name)))
	}
	pairs, err := s.writes.commit(ctx, p.Name, ops...)
	if err != nil {
		return kvqueue.Placed{}, outcome(refusedPut(err))
	}
	return s.placed(p, pairs)
}

// refusedPut returns the error for a refused transaction that creates a ticket.
func refusedPut(err error) error {
	var refused *rollback
	if !errors.As(err, &refused) {
		return err
	}
	switch first := refused.Errors[0]; {
	case first.OpIndex == 0:
		return kvqueue.ErrReleased
	case refused.sessionOver():
		return kvqueue.ErrSessionOver
	case first.OpIndex == 1:
		return kvqueue.ErrOccupied
	case first.OpIndex > 2: // a guard
		return kvqueue.ErrChanged
	}
	return err
}

// placed reads the answer to a transaction that has created a ticket: the ticket comes
// first, without its value, and the queue last.
func (s *store) placed(p *kvqueue.Put, pairs api.KVPairs) (kvqueue.Placed, error) {
	if len(pairs) == 0 || pairs[0].Key != p.Key {
		return kvqueue.Placed{}, errFiltered
	}
	own := pairs[0]
	s.note(own.CreateIndex)
	placed := kvqueue.Placed{Number: own.CreateIndex, Version: own.ModifyIndex}
	if p.Brief {
		return placed, nil
	}
	prefix := s.keys.queue(p.Name)
	pairs = slices.DeleteFunc(pairs[1:], func(q *api.KVPair) bool { return !strings.HasPrefix(q.Key, prefix) })
	queue, err := parseQueue(p.Name, pairs)
	if err != nil {
		return kvqueue.Placed{}, err
	}
	i := slices.IndexFunc(queue, func(r kvqueue.Record) bool { return r.Number == own.CreateIndex })
	if placed.Granted = i >= 0 && driver.Grantable(kvqueue.Shown(queue[:i+1]), i); !placed.Granted {
		placed.Queue = snapshot(queue, own.CreateIndex)
	}
	return placed, nil
}

// Delete implements kvqueue.Store. It is conditional on the index of the key's last
// change, since another ticket may have the key when the request arrives. A key that
// somebody has unlocked by hand is deleted, but the ticket was lost before.
func (s *store) Delete(ctx context.Context, t, next *kvqueue.Ticket) (nextThere bool, err error) {
	version, unlocked := t.Version, false
	for {
		ops := []op{indexOp(t.Key, version), keyOp(api.KVDelete, t.Key)}
		if next != nil {
			ops = append(ops, keyOp(api.KVGetOrEmpty, next.Key))
		}
		pairs, err := s.writes.commit(ctx, t.Name, ops...)
		switch {
		case err == nil && unlocked:
			return false, driver.ErrLost
		case err == nil:
			return next != nil && isThere(next.Entry, pairs), nil
		case !errors.As(err, new(*rollback)):
			return false, outcome(err)
		}
		p, _, err := s.get(s.exact(ctx), t.Key)
		switch {
		case err != nil:
			return false, outcome(err)
		case p == nil || p.CreateIndex != t.Number:
			return false, driver.ErrLost
		}
		version, unlocked = p.ModifyIndex, p.Session == "" // it was moved to another session, or changed by hand
	}
}

// Withdraw implements kvqueue.Store. The tombstone ends with the session.
func (s *store) Withdraw(ctx context.Context, t *kvqueue.Ticket) error {
	_, err := s.commit(ctx, lockOp(s.keys.tombstone(t.Session, t.ID), t.Session, nil), keyOp(api.KVDelete, t.Key))
	if errors.As(err, new(*rollback)) {
		return kvqueue.ErrSessionOver
	}
	return outcome(err)
}

// Move implements kvqueue.Store.
func (s *store) Move(ctx context.Context, t *kvqueue.Ticket, to string) error {
	for {
		p, _, err := s.get(s.exact(ctx), t.Key)
		switch {
		case err != nil:
			return err // an earlier request may have moved it
		case p == nil || p.CreateIndex != t.Number || p.Session == "":
			return driver.ErrLost
		case p.Session == to:
			return nil
		}
		unlock := keyOp(api.KVUnlock, t.Key)
		unlock.KV.Session = p.Session
		_, err = s.commit(ctx, indexOp(t.Key, p.ModifyIndex), unlock, lockOp(t.Key, to, p.Value))
		var refused *rollback
		if !errors.As(err, &refused) {
			return err
		}
		if refused.sessionOver() {
			return kvqueue.ErrSessionOver
		}
	}
}

// Read implements kvqueue.Store. The index of a prefix may go back when Consul forgets
// deleted keys. So Complete is at least the highest index of any answer before: a read
// shows all that earlier answers have shown.
func (s *store) Read(ctx context.Context, name string) (kvqueue.Snapshot, error) {
	seen := s.seen.Load()
	queue, index, err := s.readQueue(s.exact(ctx), name)
	if err != nil {
		return kvqueue.Snapshot{}, err
	}
	return *snapshot(queue, max(index, seen)), nil
}

func (s *store) readQueue(q *api.QueryOptions, name string) ([]kvqueue.Record, uint64, error) {
	pairs, index, err := s.list(q, s.keys.queue(name))
	if err != nil {
		return nil, 0, err
	}
	s.note(index)
	queue, err := parseQueue(name, pairs)
	return queue, index, err
}

// note notes the index of an answer.
func (s *store) note(index uint64) {
	for seen := s.seen.Load(); index > seen && !s.seen.CompareAndSwap(seen, index); {
		seen = s.seen.Load()
	}
}

// lookFor is for how many tickets of a session a renewal looks, in eight requests.
const lookFor = 8 * mostOps

// Missing implements kvqueue.Store. A deposed leader may miss tickets, or still have them.
func (s *store) Missing(ctx context.Context, ts []kvqueue.Ticket) (missing []int, err error) {
	ops := make([]op, len(ts))
	for i, t := range ts {
		ops[i] = keyOp(api.KVGetOrEmpty, t.Key)
	}
	pairs, err := s.ask(ctx, ops...)
	switch {
	case err != nil:
		return nil, err
	case len(pairs) != len(ts): // Consul does not say that it has left some out if the request has no token
		return nil, errFiltered
	}
	for i, t := range ts {
		if !isThere(t.Entry, pairs) {
			missing = append(missing, i)
		}
	}
	return missing, nil
}

// isThere reports whether an entry is among the pairs. One that was unlocked by hand is not.
func isThere(e kvqueue.Entry, pairs api.KVPairs) bool {
	return slices.ContainsFunc(pairs, func(p *api.KVPair) bool {
		return p.Key == e.Key && p.CreateIndex == e.Number && p.Session != ""
	})
}

// Tickets implements kvqueue.Store. Consul does not show when a session was last
// renewed, so Remaining of other processes' leases is the whole TTL.
func (s *store) Tickets(ctx context.Context, name string) ([]kvqueue.Record, error) {
	queue, _, err := s.readQueue(s.exact(ctx), name)
	return queue, err
}

// Explain implements kvqueue.Store. The core marks network errors.
func (s *store) Explain(err error) error {
	if s.Temporary(err) || noHTTP(err) {
		return driver.Unavailable(err)
	}
	return err
}

// outcome marks an error that says that nothing was done.
func outcome(err error) error {
	if err == nil || unknown(err) {
		return err
	}
	return kvqueue.Refused(err)
}

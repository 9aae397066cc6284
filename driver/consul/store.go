package consul

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

// store does what the queue asks of Consul. Of the errors of what writes, those
// for which unknown is false say that nothing was done, nor will be.
type store struct {
	requests
	keys    keyspace
	wait    time.Duration // of a blocking query
	watches chan struct{} // one element for each queue with a query of its own
	shared  sharedWatch   // of the other queues
}

var (
	errSession  = errors.New("the consul session has ended")
	errGone     = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)
	errReleased = fmt.Errorf("%w: the ticket was released before it was granted", driver.ErrLost)
)

// put creates a ticket, or finds it where an earlier request has created it.
// With look it returns the queue as it is at that instant.
//
// The request may lie with an agent that looks for a leader, or on a connection
// that is cut, and arrive long after its caller has given up: see withdraw. It
// deletes the guard against tickets of its kind: see try.
func (s *store) put(ctx context.Context, name string, e entry, look bool) (entry, []entry, error) {
	ops := append(s.create(e), keyOp(api.KVDelete, s.keys.guard(name, e.Shared)))
	if look {
		ops = append(ops, keyOp(api.KVGetTree, s.keys.queue(name)))
	}
	return s.created(ctx, name, e, ops)
}

func (s *store) create(e entry) []op {
	return []op{
		keyOp(api.KVCheckNotExists, s.keys.tombstone(e.Session, e.ID)),
		lockOp(e.Key, e.Session, e.encode()),
	}
}

// created runs a transaction that begins with create, and reads its answer.
func (s *store) created(ctx context.Context, name string, e entry, ops []op) (entry, []entry, error) {
	pairs, err := s.commit(ctx, ops...)
	var refused *rollback
	switch {
	case errors.As(err, &refused):
		if _, is := refused.failed(0); is {
			return e, nil, errReleased
		}
		if what, _ := refused.failed(1); strings.Contains(what, "invalid session") {
			return e, nil, fmt.Errorf("%w: %w", errSession, err)
		}
		return e, nil, err
	case err != nil:
		return e, nil, err
	case len(pairs) == 0 || pairs[0].Key != e.Key:
		return e, nil, errFiltered
	}
	e.CreateIndex, e.ModifyIndex = pairs[0].CreateIndex, pairs[0].ModifyIndex
	for len(pairs) > 0 && (pairs[0].Key == e.Key && len(pairs[0].Value) == 0 || !strings.HasPrefix(pairs[0].Key, s.keys.queue(name))) {
		pairs = pairs[1:]
	}
	queue, err := parseQueue(pairs)
	return e, queue, err
}

// withdraw deletes a ticket whose creation was not answered and may yet
// happen: the tombstone keeps it from being created afterwards.
//
// The tombstone ends with the session. Who calls withdraw lets the session take
// no more tickets, so that it does not live long.
func (s *store) withdraw(ctx context.Context, e entry) error {
	_, err := s.commit(ctx, lockOp(s.keys.tombstone(e.Session, e.ID), e.Session, nil), keyOp(api.KVDelete, e.Key))
	var refused *rollback
	if errors.As(err, &refused) {
		return fmt.Errorf("%w: %w", errSession, err) // with it, all its tickets and whatever might create one
	}
	return err
}

// delete deletes a ticket, unless its key is another's by now: it may be asked
// twice for the same one, and the first request arrive last.
func (s *store) delete(ctx context.Context, e entry) error {
	for {
		_, err := s.commit(ctx, indexOp(e.pair), keyOp(api.KVDelete, e.Key))
		var refused *rollback
		if !errors.As(err, &refused) {
			return err
		}
		p, _, err := s.get(s.exact(ctx), e.Key)
		switch {
		case err != nil:
			return err
		case p == nil || p.CreateIndex != e.CreateIndex:
			return errGone
		}
		e.ModifyIndex = p.ModifyIndex // it was moved to another session, or changed by hand
	}
}

// queue reads the queue of a name as it is at the index that it returns, or later.
func (s *store) queue(ctx context.Context, name string) ([]entry, uint64, error) {
	pairs, index, err := s.list(s.exact(ctx), s.keys.queue(name))
	if err != nil {
		return nil, 0, err
	}
	queue, err := parseQueue(pairs)
	return queue, index, err
}

// checkMost is how many tickets one request asks for.
const checkMost = 64

// missing returns which keys, of checkMost at most, the session does not lock.
// What a deposed leader misses is asked again, exactly.
func (s *store) missing(ctx context.Context, session string, keys []string) ([]int, error) {
	at, err := s.checkSession(s.read(ctx), session, keys)
	if err != nil || len(at) == 0 {
		return nil, err
	}
	some := make([]string, len(at))
	for i, n := range at {
		some[i] = keys[n]
	}
	sure, err := s.checkSession(s.exact(ctx), session, some)
	for i, n := range sure {
		sure[i] = at[n]
	}
	return sure, err
}

// move gives a ticket to another session, with its number. It says so too where
// an earlier request, which was not answered, has done it.
func (s *store) move(ctx context.Context, e entry, to string) (entry, error) {
	for {
		p, _, err := s.get(s.exact(ctx), e.Key)
		switch {
		case err != nil:
			return e, err
		case p == nil || p.CreateIndex != e.CreateIndex || p.Session != e.Session && p.Session != to:
			return e, errGone
		case p.Session == to:
			e.Session, e.ModifyIndex = to, p.ModifyIndex
			return e, nil
		}
		unlock := keyOp(api.KVUnlock, e.Key)
		unlock.KV.Session = e.Session
		_, err = s.commit(ctx, indexOp(*p), unlock, lockOp(e.Key, to, p.Value))
		var refused *rollback
		if err == nil {
			continue // one more read tells the index; extensions are rare
		}
		if !errors.As(err, &refused) {
			return e, err
		}
		if what, _ := refused.failed(2); strings.Contains(what, "invalid session") {
			return e, fmt.Errorf("%w: %w", errSession, err)
		}
	}
}

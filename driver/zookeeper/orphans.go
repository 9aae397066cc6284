package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// beginPut notes that a ticket is being put, until the function that it returns is called.
func (s *store) beginPut(id string) (done func()) {
	count := func(n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.putting[id] += n; s.putting[id] == 0 {
			delete(s.putting, id)
		}
	}
	count(1)
	return func() { count(-1) }
}

// orphan is called when the create of a ticket was given up without an answer. The
// request may still be in flight, on a connection that the server has not closed yet,
// and create a node that nobody knows of and that lives as long as the session. So the
// queue is searched for it until that cannot happen any more: until the server has closed
// the connection for sure.
func (s *store) orphan(parent, id string) {
	until := time.Now().Add(crashBound(s.timeout()))
	kvqueue.Go(s.engine, func(ctx context.Context) {
		for retry.Sleep(ctx, taskPause, nil) {
			last := time.Now().After(until)
			s.searching.Lock()
			bounded, cancel := context.WithTimeout(ctx, taskBound)
			err := s.deleteAll(bounded, parent, id)
			cancel()
			s.searching.Unlock()
			if last && (err == nil || errors.Is(err, driver.ErrLost)) {
				return
			}
		}
	})
}

// errPutting says that a ticket is being put.
var errPutting = errors.New("the ticket is asked for again")

// deleteAll deletes all nodes of a ticket but the one that the engine knows, once this
// connection's server has caught up with what has happened. ErrLost says that there were
// none.
func (s *store) deleteAll(ctx context.Context, parent, id string) error {
	if err := s.sync(ctx); err != nil {
		return err
	}
	v, err := s.list(ctx, parent)
	if err != nil {
		return err
	}
	result := driver.ErrLost
	for _, e := range v.Entries {
		if idOf(e.Key) != id {
			continue
		}
		s.mu.Lock()
		busy, ours := s.putting[id] > 0, s.nodes[e.Key] != nil
		s.mu.Unlock()
		switch {
		case ours:
			continue
		case busy: // it may be the new one
			return errPutting
		}
		err := s.Delete(ctx, &kvqueue.Ticket{Entry: e})
		if err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
		result = nil
	}
	return result
}

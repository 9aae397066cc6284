package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// call runs a request in its own goroutine, because the client's requests take no
// context. One that is given up ends with its connection at the latest. A request that
// cannot be sent now is not left with the client, which would send it later.
func call[T any](ctx context.Context, s *store, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if err := s.connected(ctx); err != nil {
		return none, err
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, s.marked(a.err)
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// do is call for a request that returns nothing.
func do(ctx context.Context, s *store, f func() error) error {
	_, err := call(ctx, s, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// connectedWait is how long a request waits for a session.
const connectedWait = time.Second

// connected waits until there is a session. After an error nothing was sent.
func (s *store) connected(ctx context.Context) error {
	if ctx.Err() == nil && s.conn.State() == zk.StateHasSession {
		return nil
	}
	most := time.NewTimer(connectedWait)
	defer most.Stop()
	for {
		next := s.reconnects.next()
		switch {
		case ctx.Err() != nil:
			return notSent(context.Cause(ctx))
		case s.closed():
			return notSent(errClosedConn)
		case s.conn.State() == zk.StateHasSession:
			return nil
		}
		var poll <-chan time.Time
		if s.reconnects.unknown {
			poll = time.After(pollInterval)
		}
		select {
		case <-next:
		case <-poll:
		case <-ctx.Done():
		case <-most.C:
			if s.conn.State() == zk.StateHasSession {
				return nil
			}
			return s.offline()
		}
	}
}

// unsent is an error after which it is certain that the request was not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

func notSent(err error) error { return kvqueue.Refused(unsent{err}) }

// pollInterval is how often the state of a connection is read whose events are not
// received.
const pollInterval = 20 * time.Millisecond

// offline says that there is no session, and why, if that is known: nothing was sent.
func (s *store) offline() error {
	cause := s.connection.lastError()
	if cause == nil {
		cause = errors.New(s.conn.State().String())
	}
	return notSent(driver.Unavailable(fmt.Errorf("%w: %w", zk.ErrNoServer, cause)))
}

// marked marks the client's errors that mean that no server has answered, and adds the
// reason, which the client does not return.
func (s *store) marked(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoServer):
		// The client returns it for what it has not sent, and for nothing else.
		return s.offline()
	case errors.Is(err, zk.ErrConnectionClosed):
		if cause := s.connection.lastError(); cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return driver.Unavailable(err)
	case errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrSessionExpired):
		return driver.Unavailable(err)
	}
	return err
}

// answered reports whether err is the server's answer. After all others, with those of
// the context, it is not known whether the request was carried out.
func answered(err error) bool {
	for _, answer := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrAuthFailed,
		zk.ErrNoChildrenForEphemerals, zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrInvalidPath, zk.ErrBadArguments,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// errClosedConn says that the user's connection was closed under the driver.
var errClosedConn = fmt.Errorf("%w: its ZooKeeper connection was closed", driver.ErrClosed)

// sync makes the server of this connection catch up with what has happened.
func (s *store) sync(ctx context.Context) error {
	_, err := call(ctx, s, func() (string, error) { return s.conn.Sync(s.base) })
	return err
}

// confirm asks a majority whether the session is alive. A base that is not there is an
// answer too.
func (s *store) confirm(ctx context.Context) error {
	err := do(ctx, s, s.checkBase)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// ping tries the rights that locks need.
func (s *store) ping(ctx context.Context) error {
	err := do(ctx, s, s.tryRights)
	if errors.Is(err, zk.ErrNoNode) {
		if err = s.createBase(ctx); err == nil {
			err = do(ctx, s, s.tryRights)
		}
	}
	return err
}

// createBase creates the base and what is missing above it.
func (s *store) createBase(ctx context.Context) error {
	return do(ctx, s, func() error { return s.createPath(s.base) })
}

// each asks about every item, many at once, and returns the answers in order.
func each[T, R any](ctx context.Context, s *store, items []T, ask func(T) (R, error)) ([]R, error) {
	const atOnce = 32
	answers, errs := make([]R, len(items)), make([]error, len(items))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			answers[i], errs[i] = call(ctx, s, func() (R, error) { return ask(item) })
		})
	}
	group.Wait()
	return answers, errors.Join(errs...)
}

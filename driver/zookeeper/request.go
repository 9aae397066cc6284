package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// call runs a request in its own goroutine, because the client's requests take no
// context. One that is given up ends with its connection at the latest. A request that
// cannot be sent now is not left with the client, which would send it later.
func call[T any](ctx context.Context, d *Driver, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	var none T
	if err := d.connected(ctx); err != nil {
		return none, err
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f()
		answers <- answer{v, err}
	}()
	select {
	case a := <-answers:
		return a.v, d.explain(a.err)
	case <-ctx.Done():
		return none, d.ended(ctx)
	case <-d.closing:
		return none, driver.ErrClosed
	}
}

// write is call for a request that a majority has to confirm: its success proves that
// the session is alive.
func write[T any](ctx context.Context, d *Driver, f func() (T, error)) (T, error) {
	sent, s := time.Now(), d.session()
	v, err := call(ctx, d, f)
	if now := d.session(); err == nil && now != nil && now == s {
		s.confirm(sent)
	}
	return v, err
}

// connectedWait is how long a request waits for a session.
const connectedWait = time.Second

// connected waits until there is a session. Its errors are unsent ones.
func (d *Driver) connected(ctx context.Context) error {
	if ctx.Err() == nil && d.conn.State() == zk.StateHasSession {
		return nil
	}
	most := time.NewTimer(connectedWait)
	defer most.Stop()
	for {
		next := d.reconnects.next()
		switch {
		case ctx.Err() != nil:
			return unsent{d.ended(ctx)}
		case d.connectionClosed():
			return unsent{errClosedConn}
		case d.conn.State() == zk.StateHasSession:
			return nil
		}
		var poll <-chan time.Time
		if d.reconnects.unknown {
			poll = time.After(retryFirst)
		}
		select {
		case <-next:
		case <-poll:
		case <-ctx.Done():
		case <-d.closing:
			return unsent{driver.ErrClosed}
		case <-most.C:
			if d.conn.State() == zk.StateHasSession {
				return nil
			}
			return unsent{d.offline()}
		}
	}
}

// unsent is an error after which it is certain that the request was not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// wasSent reports whether the request that failed with err may have been sent.
func wasSent(err error) bool { return !errors.As(err, new(unsent)) }

// offline says that there is no session, and why, if that is known.
func (d *Driver) offline() error {
	if cause := d.connection.lastError(); cause != nil {
		return driver.Unavailable(fmt.Errorf("%w: %w", zk.ErrNoServer, cause))
	}
	return driver.Unavailable(fmt.Errorf("%w (%v)", zk.ErrNoServer, d.conn.State()))
}

// ended is the error of a request whose ctx has ended: with the reason why there is no
// session, if there is none.
func (d *Driver) ended(ctx context.Context) error {
	if d.conn.State() == zk.StateHasSession {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), d.offline())
}

// explain marks the client's errors that mean that no server has answered, and adds the
// reason, which the client does not return.
func (d *Driver) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoServer):
		// The client returns it for what it has not sent, and for nothing else.
		return unsent{d.offline()}
	case errors.Is(err, zk.ErrConnectionClosed):
		if cause := d.connection.lastError(); cause != nil {
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

// final reports whether err will not get better by waiting.
func final(err error) bool {
	return answered(err) || errors.As(err, new(*protocol.Mismatch)) || errors.Is(err, zk.ErrClosing) || errors.Is(err, driver.ErrClosed) ||
		errors.Is(err, driver.ErrLost) || errors.Is(err, errClosedConn)
}

// errClosedConn says that the user's connection was closed under the driver.
var errClosedConn = fmt.Errorf("%w: its ZooKeeper connection was closed", driver.ErrClosed)

// sync makes the server of this connection catch up with what has happened.
func (d *Driver) sync(ctx context.Context) error {
	_, err := call(ctx, d, func() (string, error) { return d.conn.Sync(d.base) })
	return err
}

// confirm asks a majority whether the session is alive.
func (d *Driver) confirm(ctx context.Context) error {
	_, err := write(ctx, d, func() (struct{}, error) { return struct{}{}, d.checkBase() })
	return err
}

// createBase creates the base and what is missing above it.
func (d *Driver) createBase(ctx context.Context) error {
	_, err := call(ctx, d, func() (struct{}, error) { return struct{}{}, d.createPath(d.base) })
	return err
}

// each asks about every item, many at once, and returns the answers in order.
func each[T, R any](ctx context.Context, d *Driver, items []T, ask func(T) (R, error)) ([]R, error) {
	const atOnce = 32
	answers, errs := make([]R, len(items)), make([]error, len(items))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			answers[i], errs[i] = call(ctx, d, func() (R, error) { return ask(item) })
		})
	}
	group.Wait()
	return answers, errors.Join(errs...)
}

// pause waits before a request is tried again. It reports false if ctx or the driver has
// ended.
func (d *Driver) pause(ctx context.Context, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-d.closing:
	}
	return false
}

package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// call does a request in its own goroutine, because the client's requests know
// no context. One that is given up ends with its connection at the latest. What
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

// write is call for a request that a majority has to confirm: its success
// proves that the session is alive.
func write[T any](ctx context.Context, d *Driver, f func() (T, error)) (T, error) {
	sent, s := time.Now(), d.session()
	v, err := call(ctx, d, f)
	if now := d.session(); err == nil && now != nil && now == s {
		s.prove(sent)
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
		back := d.links.back()
		switch {
		case ctx.Err() != nil:
			return unsent{d.ended(ctx)}
		case d.isOver():
			return unsent{errClosedConn}
		case d.conn.State() == zk.StateHasSession:
			return nil
		}
		var look <-chan time.Time
		if d.links.blind {
			look = time.After(retryFirst)
		}
		select {
		case <-back:
		case <-look:
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

// wasSent reports whether the request that err answers may have been sent.
func wasSent(err error) bool { return !errors.As(err, new(unsent)) }

// offline says that there is no session, and why, if that is known.
func (d *Driver) offline() error {
	if why := d.connection.why(); why != nil {
		return driver.Unavailable(fmt.Errorf("%w: %w", zk.ErrNoServer, why))
	}
	return driver.Unavailable(fmt.Errorf("%w (%v)", zk.ErrNoServer, d.conn.State()))
}

// ended is the error of a request whose ctx has ended: with the reason why there
// is no session, if there is none.
func (d *Driver) ended(ctx context.Context) error {
	if d.conn.State() == zk.StateHasSession {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), d.offline())
}

// explain marks the client's errors that mean that no server has answered, and
// adds the reason that the client keeps to itself.
func (d *Driver) explain(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoServer):
		// The client says so of what it has not sent, and of nothing else.
		return unsent{d.offline()}
	case errors.Is(err, zk.ErrConnectionClosed):
		if why := d.connection.why(); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return driver.Unavailable(err)
	case errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrSessionExpired):
		return driver.Unavailable(err)
	}
	return err
}

// answered reports whether err is the server's answer. All others, with those
// of the context, leave open whether the request was carried out.
func answered(err error) bool {
	for _, said := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrAuthFailed,
		zk.ErrNoChildrenForEphemerals, zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrInvalidPath, zk.ErrBadArguments,
	} {
		if errors.Is(err, said) {
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

// sync makes the server that we are connected to catch up with what has
// happened.
func (d *Driver) sync(ctx context.Context) error {
	_, err := call(ctx, d, func() (string, error) { return d.conn.Sync(d.base) })
	return err
}

// pause sleeps before a request is tried again; false: ctx or the driver ended.
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

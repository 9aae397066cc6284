package zkconn

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// answer is what a request returns; which part of it depends on the request.
type answer struct {
	data    []byte
	nodes   []string
	stat    *zk.Stat
	fired   <-chan zk.Event
	results []zk.MultiResponse
}

// do sends a request when there is a session. It does not leave a request that cannot be
// sent now with the client, which would send it later.
func (c *Conn) do(ctx context.Context, request func(*answer) error) (answer, error) {
	if err := c.connected(ctx); err != nil {
		return answer{}, err
	}
	if err := c.logIn(ctx); err != nil {
		return answer{}, unsent{err}
	}
	return c.send(ctx, request)
}

// send sends a request from a goroutine of its own, since the client takes no context. A
// request that is given up ends with its connection at the latest.
func (c *Conn) send(ctx context.Context, request func(*answer) error) (answer, error) {
	type result struct {
		answer
		err error
	}
	results := make(chan result, 1)
	go func() {
		var r result
		r.err = request(&r.answer)
		results <- r
	}()
	select {
	case r := <-results:
		if r.err != nil {
			return answer{}, c.explain(r.err) // the client returns an empty answer beside most errors
		}
		return r.answer, nil
	case <-ctx.Done():
		return answer{}, c.EndError(ctx)
	case <-c.life.Done():
		return answer{}, driver.ErrClosed
	}
}

// Get returns the data of a node.
func (c *Conn) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	a, err := c.do(ctx, func(a *answer) (err error) { a.data, a.stat, err = c.zk.Get(path); return err })
	return a.data, a.stat, err
}

// Exists returns nil for a node that is not there.
func (c *Conn) Exists(ctx context.Context, path string) (*zk.Stat, error) {
	a, err := c.do(ctx, func(a *answer) error {
		ok, stat, err := c.zk.Exists(path)
		if ok {
			a.stat = stat
		}
		return err
	})
	return a.stat, err
}

// Children returns the names of a node's children.
func (c *Conn) Children(ctx context.Context, path string) ([]string, *zk.Stat, error) {
	a, err := c.do(ctx, func(a *answer) (err error) { a.nodes, a.stat, err = c.zk.Children(path); return err })
	return a.nodes, a.stat, err
}

// CreatePath creates a persistent node and the missing nodes above it.
func (c *Conn) CreatePath(ctx context.Context, path string, acl []zk.ACL) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		st, err := c.Exists(ctx, path[:i])
		if st != nil || errors.Is(err, zk.ErrNoAuth) { // the server refuses to show a node that is there
			continue
		}
		if err != nil {
			return err
		}
		_, err = c.Multi(ctx, &zk.CreateRequest{Path: path[:i], Data: []byte{}, Acl: acl})
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path[:i], err)
		}
	}
	return nil
}

// Multi does all of the operations, or none. A majority must confirm it, so its success
// shows that the session is alive.
func (c *Conn) Multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return c.MultiUntil(ctx, func() {}, ops...)
}

// MultiUntil is Multi, and calls ended, once, when the request has ended. That may be after
// MultiUntil has returned, since ctx has ended. Whatever the request does is done by then, and
// Confirm catches up with it: either it was answered, or its connection has ended. A server that
// gets a session on a new connection closes the one before (ZooKeeperServer.processConnectRequest),
// and the leader refuses what another server has still sent for it (SessionTracker.checkSession).
func (c *Conn) MultiUntil(ctx context.Context, ended func(), ops ...any) ([]zk.MultiResponse, error) {
	ended = sync.OnceFunc(ended)
	sent, s := time.Now(), c.Session()
	a, err := c.do(ctx, func(a *answer) (err error) {
		defer ended()
		a.results, err = c.zk.Multi(ops...)
		return err
	})
	if !WasSent(err) {
		ended()
	}
	if err == nil && s != nil && c.Session() == s {
		s.confirm(sent)
	}
	return a.results, err
}

// Sync makes the server of this connection catch up with all earlier changes.
func (c *Conn) Sync(ctx context.Context) error {
	_, err := c.do(ctx, func(*answer) error { _, err := c.zk.Sync(c.options.Base); return err })
	return err
}

const connectedWait = time.Second // how long a request waits for a session

// Present waits until there is a session, and returns it.
func (c *Conn) Present(ctx context.Context) (*Session, error) {
	if err := c.connected(ctx); err != nil {
		return nil, err
	}
	if s := c.Session(); s != nil {
		return s, nil
	}
	return nil, unsent{c.offline()}
}

// connected waits until there is a session. Its errors say that nothing was sent.
func (c *Conn) connected(ctx context.Context) error {
	if !c.life.Closed() && ctx.Err() == nil && c.zk.State() == zk.StateHasSession {
		return nil
	}
	most := time.NewTimer(connectedWait)
	defer most.Stop()
	for late := false; ; {
		next := c.Reconnected()
		switch {
		case c.life.Closed():
			return unsent{driver.ErrClosed}
		case ctx.Err() != nil:
			return c.withReason(unsent{context.Cause(ctx)})
		case c.connectionClosed():
			return unsent{errClosedConn}
		case c.zk.State() == zk.StateHasSession:
			return nil
		case late:
			return unsent{c.offline()}
		}
		select {
		case <-next:
		case <-ctx.Done():
		case <-c.life.Done():
		case <-most.C:
			late = true
		}
	}
}

// errClosedConn says that the user's connection was closed.
var errClosedConn = fmt.Errorf("%w: its ZooKeeper connection was closed", driver.ErrClosed)

// unsent is an error after which it is certain that the request was not sent.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// WasSent reports whether the request that failed with err may have been sent.
func WasSent(err error) bool { return !errors.As(err, new(unsent)) }

// Answered reports whether err is the server's answer. After any other error, such as the
// context's, the request may have been carried out, if it was sent (WasSent).
func Answered(err error) bool {
	for _, answer := range []error{
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrBadVersion, zk.ErrAuthFailed,
		zk.ErrNoChildrenForEphemerals, zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrInvalidPath, zk.ErrBadArguments, errRefused,
	} {
		if errors.Is(err, answer) {
			return true
		}
	}
	return false
}

// offline returns an error that says that there is no session, and why, if known.
func (c *Conn) offline() error {
	cause := c.network.lastError()
	if cause == nil {
		cause = errors.New(withoutSession(c.zk.State()))
	}
	return driver.Unavailable(fmt.Errorf("%w: %w", zk.ErrNoServer, cause))
}

// withoutSession says in words how far a connection has come that has no session.
func withoutSession(s zk.State) string {
	switch s {
	case zk.StateConnected:
		return "a server has taken the connection, and has not opened a session yet"
	case zk.StateHasSession:
		return "the session has only now been opened"
	}
	return "no connection has been made yet"
}

// EndError returns the error of a request or a wait that ctx has ended. If there is no
// session, it says why.
func (c *Conn) EndError(ctx context.Context) error { return c.withReason(context.Cause(ctx)) }

// withReason adds to the cause of an end why there is no session.
func (c *Conn) withReason(cause error) error {
	if c.zk.State() == zk.StateHasSession {
		return cause
	}
	return errors.Join(cause, c.offline())
}

// explain marks the client's errors that mean that no server has answered, and adds the
// reason, which the client does not return.
func (c *Conn) explain(err error) error {
	switch {
	case errors.Is(err, zk.ErrNoServer):
		// The client returns it only for requests that it has not sent.
		return unsent{c.offline()}
	case errors.Is(err, zk.ErrConnectionClosed):
		if cause := c.network.lastError(); cause != nil {
			err = fmt.Errorf("%w: %w", err, cause)
		}
		return driver.Unavailable(err)
	case errors.Is(err, zk.ErrSessionMoved), errors.Is(err, zk.ErrSessionExpired):
		return driver.Unavailable(err)
	}
	return refused(err)
}

// errRefused says that a server has refused a request for a reason that the client does not
// know.
var errRefused = errors.New("the server has refused the request")

// Codes of org.apache.zookeeper.KeeperException.Code. Those below codeAPI are refusals, but
// for codeThrottled, after which the request may be repeated.
const (
	codeAPI       = -100
	codeQuota     = -125
	codeThrottled = -127
)

// refused marks a refusal whose code the client has only as text.
func refused(err error) error {
	code := 0
	if _, scan := fmt.Sscanf(err.Error(), "unknown error: %d", &code); scan != nil || code >= codeAPI || code == codeThrottled {
		return err
	}
	if code == codeQuota {
		err = errors.New("the quota of the path is used up")
	}
	return fmt.Errorf("%w: %w", errRefused, err)
}

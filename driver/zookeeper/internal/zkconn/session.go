package zkconn

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// Session is one session of a connection. When the server ends it, the client begins
// another one by itself. The ephemeral nodes of the old session are gone.
type Session struct {
	ID      int64
	timeout func() time.Duration
	gone    chan struct{} // closed when the server has said that the session is over

	mu        sync.Mutex
	confirmed time.Time // when the last request that a majority confirmed was sent
}

func newSession(id int64, timeout func() time.Duration) *Session {
	return &Session{ID: id, timeout: timeout, gone: make(chan struct{})}
}

// Timeout returns the timeout that the server has granted. It may change when the session
// comes back on another server.
func (s *Session) Timeout() time.Duration { return s.timeout() }

// Lease returns how long the session's nodes are sure to stay, counted from when a
// request that a majority confirmed was sent.
func (s *Session) Lease() time.Duration { return Lease(s.Timeout()) }

// Lease returns the lease that a session of that timeout gives.
//
// The leader counts the timeout from the last heartbeat that was reported to it, and ends
// no session before. A request that it confirms shows that the session has not ended. But
// if the request came through a follower, the leader does not count it as a heartbeat:
// followers report heartbeats in their answers to the leader's pings, twice a tick. If a
// follower dies together with the client, right after it has forwarded a request, the
// leader has only the heartbeats from before the last half tick. The last of them may be
// a third of the session older: the client pings at that interval, by a ticker, whatever
// else it sends. (If the client has gone to another server meanwhile, that server has
// asked the leader whether the session lives, which is a heartbeat. And a new leader gives
// all sessions their full timeout.) So a lease is the timeout less a third and half a tick.
//
// Servers do not show their tick. It is assumed to be the default of 2 s or, if that is
// more, a fifth of the session; but no more than half of the session, the least that
// servers grant unless their minSessionTimeout is set.
//
// The comment of package zookeeper says what this does not cover.
func Lease(timeout time.Duration) time.Duration {
	halfTick := min(timeout/4, max(timeout/10, time.Second))
	return timeout - timeout/3 - halfTick
}

// Over reports whether the server has said that the session is over.
func (s *Session) Over() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

func (s *Session) confirm(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.confirmed) {
		s.confirmed = sent
	}
}

func (s *Session) confirmedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

// Session returns the present session, or nil if there is none. It also notices that the
// server has ended the previous one.
func (c *Conn) Session() *Session {
	c.mu.Lock()
	// A connection changes its session's ID only when the server has said that the
	// session is over. The ID is read while the lock is held, so that an older ID does
	// not end a newer session.
	id := c.zk.SessionID()
	before := c.sess
	if before != nil && before.ID == id && !c.userClosed {
		c.mu.Unlock()
		return before
	}
	c.sess = nil
	if id != 0 && !c.userClosed && c.zk.State() == zk.StateHasSession {
		c.sess = newSession(id, c.granted)
	}
	now := c.sess
	if before != nil {
		close(before.gone)
	}
	c.mu.Unlock()
	if before != nil {
		c.ended(before)
	}
	return now
}

// Timeout returns the session's timeout: the one that the server has granted or, while
// there is no session, the one that was asked for.
func (c *Conn) Timeout() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sess != nil {
		return c.sess.Timeout()
	}
	return c.options.Session
}

// timeoutField finds the field of a *zk.Conn with the timeout that the server has
// granted, which may be shorter than the one asked for. The client does not export it.
// With too long a timeout two processes could hold the same lock, so a client without
// that field is refused.
func timeoutField(conn any) (reflect.Value, error) {
	v := reflect.ValueOf(conn).Elem().FieldByName("sessionTimeoutMs")
	if !v.IsValid() || v.Kind() != reflect.Int32 {
		return v, fmt.Errorf("zookeeper: this version of github.com/go-zookeeper/zk does not show the timeout of the session: %w", driver.ErrUnsupported)
	}
	return v, nil
}

// granted reads that field, for a session: before there is one, the field has the timeout that
// was asked for. The client writes it, without a lock, when a server gives it a session.
//
//go:norace
func (c *Conn) granted() time.Duration {
	return time.Duration(*(*int32)(c.timeout.Addr().UnsafePointer())) * time.Millisecond
}

// Confirm asks a majority whether the session is alive. A read, or a sync, does not prove
// it: a server that is cut off from the others answers these for a while, although the
// session may have ended already. After the answer the server has caught up with all earlier
// changes. That the base is not there is an answer, too.
func (c *Conn) Confirm(ctx context.Context) error {
	_, err := c.Multi(ctx, &zk.CheckVersionRequest{Path: c.options.Base, Version: -1})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

// ConfirmOrReconnect is Confirm for a renewal. If there is no answer in time, the server hangs
// or is cut off from the others, and the client must go to another one: by itself it would
// notice after two thirds of the session, when the leases are over. It does not leave because
// of a caller's short ctx, nor because of one lost request while others are confirmed.
func (c *Conn) ConfirmOrReconnect(ctx context.Context) error {
	sent, s, conn := time.Now(), c.Session(), c.network.present()
	err := c.Confirm(ctx)
	if err == nil || ctx.Err() == nil || s == nil || conn == nil || !c.network.hasSeveral() {
		return err
	}
	if time.Since(sent) > s.Lease()/8 && s.confirmedAt().Before(sent) {
		_ = conn.Close() // the client notices, and goes to the next server
	}
	return err
}

// ErrExpired says that a session has ended.
var ErrExpired = fmt.Errorf("%w: %w", driver.ErrLost, zk.ErrSessionExpired)

// LeaseStart returns the moment from which a lease of ttl counts. That is now or, if the
// last request that a majority has confirmed does not show that the session lives for
// that long, as much earlier as necessary. If that is too early, it asks a majority first.
func (c *Conn) LeaseStart(ctx context.Context, s *Session, ttl time.Duration) (time.Time, error) {
	now, lease := time.Now(), s.Lease()
	ttl = min(ttl, lease)
	from := func() time.Time { return s.confirmedAt().Add(lease - ttl) }
	if at := from(); now.Sub(at) > ttl/8 {
		if err := c.Confirm(ctx); err != nil {
			return time.Time{}, err
		}
	}
	if s.Over() {
		return time.Time{}, ErrExpired
	}
	if at := from(); at.Before(now) {
		return at, nil
	}
	return now, nil
}

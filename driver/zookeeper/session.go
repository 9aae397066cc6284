package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// session is one session of the connection. When the server ends it, the
// connection begins another by itself; the tickets of the old one are gone.
type session struct {
	id      int64
	timeout atomic.Int64  // nanoseconds, as negotiated
	gone    chan struct{} // closed when it is over: the server said so

	mu     sync.Mutex
	proved time.Time // when the last request that a majority confirmed was sent
}

// lease is how long a ticket is sure to stand after a request that a majority
// confirmed was sent.
func (s *session) lease() time.Duration { return leaseOf(time.Duration(s.timeout.Load())) }

// leaseOf is the lease that a session of that timeout gives.
//
// The leader counts the timeout from the last sign of life that it was told of,
// and ends no session before. A request that it confirms shows that the session
// has not ended, but is no sign of life to it when it comes by a follower: these
// tell of those in their answers to the leader's pings, twice a tick. If one dies
// together with the client, right after it has passed a request on, the leader
// has the signs from before the last half tick. The latest of them may be a third of
// the session older: the client pings in that interval, by a ticker, whatever
// else it sends. (For a client that has gone to another server meanwhile the
// leader itself was asked whether the session lives, which is a sign; and a new
// leader gives all sessions their full timeout.) So a lease is the timeout less a
// third and half a tick.
//
// No server tells its tick. It is taken for the default of 2 s or, if that is
// more, a fifth of the session; but for no more than half of the session, the
// least that servers grant unless their minSessionTimeout is set.
//
// The package comment says what that does not cover.
func leaseOf(timeout time.Duration) time.Duration {
	halfTick := min(timeout/4, max(timeout/10, time.Second))
	return timeout - timeout/3 - halfTick
}

func (s *session) prove(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.proved) {
		s.proved = sent
	}
}

func (s *session) provedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proved
}

func (s *session) over() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// errExpired is why tickets are lost when the session is.
var errExpired = fmt.Errorf("%w: %w", driver.ErrLost, zk.ErrSessionExpired)

// session returns the present session; nil while there is none. It notices
// when the server has ended the one before.
func (d *Driver) session() *session {
	// A connection changes its session's number only when the server has said
	// that the session is over.
	id := d.conn.SessionID()
	d.mu.Lock()
	s := d.sess
	if s != nil && s.id == id && !d.over {
		d.mu.Unlock()
		return s
	}
	d.sess = nil
	if id != 0 && !d.over && d.conn.State() == zk.StateHasSession {
		d.sess = newSession(id, timeoutOf(d.conn, d.asked))
	}
	now := d.sess
	var lost []driver.Hold
	if s != nil {
		lost = d.forgetSession(s)
	}
	d.mu.Unlock()
	for _, h := range lost {
		d.tellLost(h, errExpired)
	}
	return now
}

func newSession(id int64, timeout time.Duration) *session {
	s := &session{id: id, gone: make(chan struct{})}
	s.timeout.Store(int64(timeout))
	return s
}

// forgetSession ends s and drops its tickets; it returns those that were held.
// With mu held.
func (d *Driver) forgetSession(s *session) (lost []driver.Hold) {
	close(s.gone)
	for id, t := range d.tickets {
		if t.sess != s {
			continue
		}
		delete(d.tickets, id)
		if t.held {
			lost = append(lost, t.hold)
		}
		d.tidyLater(parentOf(t.path))
	}
	return lost
}

// timeoutOf is the session timeout that the server has granted, which it may
// have made shorter than asked. The client keeps it to itself; to trust a
// longer one would be to hold locks that somebody else holds too. It is read
// only while there is a session, when the client does not write it.
func timeoutOf(conn *zk.Conn, asked time.Duration) time.Duration {
	v := reflect.ValueOf(conn).Elem().FieldByName("sessionTimeoutMs")
	if v.IsValid() && v.Kind() == reflect.Int32 && v.Int() > 0 {
		return time.Duration(v.Int()) * time.Millisecond
	}
	return asked
}

// listen hears the events of the connection until it, or the driver, is closed.
func (d *Driver) listen(events <-chan zk.Event) {
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				d.connectionOver()
				return
			}
			d.hear(ev)
		case <-d.closing:
			return
		}
	}
}

func (d *Driver) hear(ev zk.Event) {
	switch ev.Type {
	case zk.EventSession:
		if !d.owned {
			d.links.hear(ev)
		}
		if s := d.session(); s != nil && ev.State == zk.StateHasSession {
			s.timeout.Store(int64(timeoutOf(d.conn, d.asked)))
		}
	case zk.EventNodeDeleted, zk.EventNodeDataChanged:
		d.changed(ev)
	case zk.EventNotWatching:
		d.session()
	}
	if d.forward != nil {
		d.forward(ev)
	}
}

// connectionOver is called when the connection was closed: its session ends
// with it, and all tickets.
func (d *Driver) connectionOver() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.session()
}

func (d *Driver) tellLost(h driver.Hold, cause error) {
	if d.tell != nil {
		d.tell(h, cause)
	}
}

// alive returns a moment from which a lease of ttl counts: now or, if the last
// request that a majority has confirmed does not show the session to be alive
// for that long, as much earlier as need be. It asks again when that would be
// too early.
func (d *Driver) alive(ctx context.Context, s *session, ttl time.Duration) (time.Time, error) {
	now, lease := time.Now(), s.lease()
	ttl = min(ttl, lease)
	from := func() time.Time { return s.provedAt().Add(lease - ttl) }
	if at := from(); now.Sub(at) > ttl/8 {
		if err := d.prove(ctx); err != nil {
			return time.Time{}, err
		}
	}
	if s.over() {
		return time.Time{}, errExpired
	}
	if at := from(); at.Before(now) {
		return at, nil
	}
	return now, nil
}

// prove asks a majority whether the session is alive.
func (d *Driver) prove(ctx context.Context) error {
	_, err := write(ctx, d, func() (struct{}, error) { return struct{}{}, d.showAlive() })
	return err
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

// call does a request in its own goroutine, because the client's requests know
// no context. One that is given up ends with its connection at the latest.
func call[T any](ctx context.Context, d *Driver, f func() (T, error)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answers := make(chan answer, 1)
	go func() {
		v, err := f()
		answers <- answer{v, err}
	}()
	var none T
	select {
	case a := <-answers:
		return a.v, a.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-d.closing:
		return none, driver.ErrClosed
	}
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
	return answered(err) || errors.Is(err, zk.ErrClosing) || errors.Is(err, driver.ErrClosed) ||
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

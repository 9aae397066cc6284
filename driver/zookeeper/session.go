package zookeeper

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// session is one session of the connection. When the server ends it, the connection
// begins another by itself; the tickets of the old one are gone.
type session struct {
	id      int64
	timeout atomic.Int64  // nanoseconds, as negotiated
	gone    chan struct{} // closed when the server has said that the session is over

	mu        sync.Mutex
	confirmed time.Time // when the last request that a majority confirmed was sent
}

// lease is how long a ticket is sure to stay after a request that a majority confirmed
// was sent.
func (s *session) lease() time.Duration { return leaseOf(time.Duration(s.timeout.Load())) }

// leaseOf is the lease that a session of that timeout gives.
//
// The leader counts the timeout from the last heartbeat that was reported to it, and ends no
// session before. A request that it confirms shows that the session has not ended, but
// is no heartbeat to it when it comes by a follower: these report heartbeats in their
// answers to the leader's pings, twice a tick. If a follower dies together with the
// client, right after it has passed a request on, the leader has the heartbeats from
// before the last half tick. The latest of them may be a third of the session older: the
// client pings in that interval, by a ticker, whatever else it sends. (For a client that
// has gone to another server meanwhile the leader itself was asked whether the session
// lives, which is a heartbeat; and a new leader gives all sessions their full timeout.)
// So a lease is the timeout less a third and half a tick.
//
// No server says what its tick is. The default of 2 s is assumed or, if that is more, a fifth
// of the session; but no more than half of the session, the least that servers grant
// unless their minSessionTimeout is set.
//
// The package comment says what that does not cover.
func leaseOf(timeout time.Duration) time.Duration {
	halfTick := min(timeout/4, max(timeout/10, time.Second))
	return timeout - timeout/3 - halfTick
}

func (s *session) confirm(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sent.After(s.confirmed) {
		s.confirmed = sent
	}
}

func (s *session) confirmedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.confirmed
}

func (s *session) over() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// errExpired is the cause of the loss of tickets whose session has ended.
var errExpired = fmt.Errorf("%w: %w", driver.ErrLost, zk.ErrSessionExpired)

// session returns the present session; nil while there is none. It notices when the
// server has ended the one before.
func (d *Driver) session() *session {
	d.mu.Lock()
	// A connection changes its session's ID only when the server has said that the
	// session is over. It is read with the lock held: an older ID must not end a newer
	// session.
	id := d.conn.SessionID()
	s := d.sess
	if s != nil && s.id == id && !d.over {
		d.mu.Unlock()
		return s
	}
	d.sess = nil
	if id != 0 && !d.over && d.conn.State() == zk.StateHasSession {
		if timeout := d.granted.timeout(); timeout > 0 {
			d.sess = newSession(id, timeout)
		}
	}
	now := d.sess
	var lost []driver.Hold
	if s != nil {
		lost = d.forgetSession(s)
	}
	d.mu.Unlock()
	for _, h := range lost {
		d.notifyLost(h, errExpired)
	}
	return now
}

func newSession(id int64, timeout time.Duration) *session {
	s := &session{id: id, gone: make(chan struct{})}
	s.timeout.Store(int64(timeout))
	return s
}

// forgetSession ends s and takes its tickets off the books; it returns those that were
// held. With mu held.
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
		d.removeLater(parentOf(t.path))
	}
	return lost
}

func (d *Driver) notifyLost(h driver.Hold, cause error) {
	if d.lost != nil {
		d.lost(h, cause)
	}
}

// granted is the session timeout that the server has granted, which it may have made
// shorter than asked. The client keeps it in a field that is not exported. To trust a
// longer one would be to hold locks that somebody else holds too, so a client without
// that field is refused.
type granted struct {
	field reflect.Value
	own   *atomic.Int64 // of a connection of the driver's own: what was read when the session began
}

// timeoutField finds the field; conn is a *zk.Conn.
func timeoutField(conn any) (reflect.Value, error) {
	v := reflect.ValueOf(conn).Elem().FieldByName("sessionTimeoutMs")
	if !v.IsValid() || v.Kind() != reflect.Int32 {
		return v, fmt.Errorf("zookeeper: this version of github.com/go-zookeeper/zk does not show the timeout of the session: %w", driver.ErrUnsupported)
	}
	return v, nil
}

// load reads the field. The client writes it when it is given a session, and may do so
// for the next connection while the event of the last one is handled here: what is read
// then is what the one server has granted, or the other, and the next event says which.
//
//go:norace
func (g granted) load() int64 { return int64(*(*int32)(g.field.Addr().UnsafePointer())) }

// begun is called by the client when a session begins on a connection of the driver's
// own: while it does not write the field.
func (g granted) begun() { g.own.Store(g.load()) }

// timeout is called only while there is a session: before that the field has what was
// asked for. 0 means that it is not known yet.
func (g granted) timeout() time.Duration {
	var ms int64
	if g.own != nil {
		ms = g.own.Load()
	} else {
		ms = g.load()
	}
	return time.Duration(ms) * time.Millisecond
}

// listen handles the events of a user's connection until it, or the driver, is closed.
func (d *Driver) listen(events <-chan zk.Event) {
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				d.noteClosed()
				return
			}
			d.handle(ev)
		case <-d.closing:
			return
		}
	}
}

// handle handles one event of the connection.
func (d *Driver) handle(ev zk.Event) {
	switch ev.Type {
	case zk.EventSession:
		if !d.owned {
			d.reconnects.observe(ev)
		}
		if s := d.session(); s != nil && ev.State == zk.StateHasSession && d.conn.State() == ev.State {
			s.timeout.Store(int64(d.granted.timeout()))
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

// noteClosed is called when the connection was closed: its session ends with it, and all
// tickets.
func (d *Driver) noteClosed() {
	d.mu.Lock()
	d.over = true
	d.mu.Unlock()
	d.session()
	d.reconnects.wake()
}

func (d *Driver) connectionClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.over
}

// leaseStart returns the moment from which a lease of ttl counts: now or, if the last
// request that a majority has confirmed does not show the session to be alive for that
// long, as much earlier as need be. It asks a majority when that would be too early.
func (d *Driver) leaseStart(ctx context.Context, s *session, ttl time.Duration) (time.Time, error) {
	now, lease := time.Now(), s.lease()
	ttl = min(ttl, lease)
	from := func() time.Time { return s.confirmedAt().Add(lease - ttl) }
	if at := from(); now.Sub(at) > ttl/8 {
		if err := d.confirm(ctx); err != nil {
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

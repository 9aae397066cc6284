package zookeeper

import (
	"context"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// session is one session of the connection. When the server ends it, the connection
// begins another by itself; the tickets of the old one are gone.
type session struct {
	id      int64
	timeout atomic.Int64 // nanoseconds, as negotiated
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

// name is the ID by which the engine knows the session.
func (s *session) name() string { return sessionName(s.id) }

// session returns the present session; nil while there is none. It notices when the
// server has ended the one before, and tells the engine.
func (s *store) session() *session {
	s.mu.Lock()
	// A connection changes its session's ID only when the server has said that the
	// session is over. It is read with the lock held: an older ID must not end a newer
	// session.
	id := s.conn.SessionID()
	before := s.sess
	if before != nil && before.id == id && !s.over {
		s.mu.Unlock()
		return before
	}
	s.sess = nil
	if id != 0 && !s.over && s.conn.State() == zk.StateHasSession {
		s.sess = newSession(id, s.granted.timeout())
	}
	now := s.sess
	var parents []string
	if before != nil {
		for path := range s.nodes {
			parents = append(parents, parentOf(path))
		}
		clear(s.nodes)
	}
	s.mu.Unlock()
	if before != nil {
		s.removeLater(parents...)
		kvqueue.SessionOver(s.engine, before.name())
	}
	return now
}

func newSession(id int64, timeout time.Duration) *session {
	s := &session{id: id}
	s.timeout.Store(int64(timeout))
	return s
}

// timeout is the session's: what the server has granted or, before there has been a
// session, what was asked for.
func (s *store) timeout() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sess != nil {
		return time.Duration(s.sess.timeout.Load())
	}
	return s.asked
}

// granted is the session timeout that the server has granted, which it may have made
// shorter than asked. The client keeps it in a field that is not exported. To trust a
// longer one would be to hold locks that somebody else holds too, so a client without
// that field is refused.
type granted struct{ field reflect.Value }

// timeoutField finds the field; conn is a *zk.Conn.
func timeoutField(conn any) (reflect.Value, error) {
	v := reflect.ValueOf(conn).Elem().FieldByName("sessionTimeoutMs")
	if !v.IsValid() || v.Kind() != reflect.Int32 {
		return v, fmt.Errorf("zookeeper: this version of github.com/go-zookeeper/zk does not show the timeout of the session: %w", driver.ErrUnsupported)
	}
	return v, nil
}

// timeout is called only while there is a session: before that the field has what was
// asked for. The client writes it when it is given a session, and may do so for the next
// connection while the event of the last one is handled here: what is read then is what
// the one server has granted, or the other, and the next event says which.
//
//go:norace
func (g granted) timeout() time.Duration {
	return time.Duration(*(*int32)(g.field.Addr().UnsafePointer())) * time.Millisecond
}

// listen handles the events of a user's connection until it, or the driver, is closed.
func (s *store) listen(ctx context.Context, events <-chan zk.Event) {
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				s.noteClosed()
				return
			}
			s.handle(ev)
		case <-ctx.Done():
			return
		}
	}
}

// handle handles one event of the connection.
func (s *store) handle(ev zk.Event) {
	s.unwatch(ev.Path)
	switch ev.Type {
	case zk.EventSession:
		if s.connection == nil {
			s.reconnects.observe(ev)
		}
		if now := s.session(); now != nil && ev.State == zk.StateHasSession && s.conn.State() == ev.State {
			now.timeout.Store(int64(s.granted.timeout()))
		}
	case zk.EventNodeDeleted, zk.EventNodeDataChanged:
		s.changed(ev)
	case zk.EventNotWatching:
		s.session()
	}
	if s.forward != nil {
		s.forward(ev)
	}
}

// noteClosed is called when the connection was closed: its session ends with it, and all
// tickets.
func (s *store) noteClosed() {
	s.mu.Lock()
	s.over = true
	s.mu.Unlock()
	s.session()
	s.reconnects.wake()
}

func (s *store) closed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over
}

// close closes a connection of the driver's own. Within a minimum hold the session is not
// ended: it lives on until it times out, and its tickets with it.
func (s *store) close() {
	if s.connection == nil {
		return
	}
	if kvqueue.Kept(s.engine) || s.conn.State() != zk.StateHasSession {
		s.connection.close()
	}
	done := make(chan struct{})
	go func() {
		s.conn.Close()
		close(done)
	}()
	bound := time.NewTimer(closeBound)
	defer bound.Stop()
	select {
	case <-done:
	case <-bound.C:
	}
	s.connection.close() // the client then gives up, within a second
}

// closeBound is how long Close waits for the server to confirm the end of the session.
const closeBound = 100 * time.Millisecond

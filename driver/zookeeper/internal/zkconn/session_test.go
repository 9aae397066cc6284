package zkconn

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// adopted returns a user's connection behind a proxy, and the sessions that end. If it
// is silent, no events are received: only requests notice the end of a session.
func adopted(t *testing.T, session time.Duration, silent bool) (*zk.Conn, *Conn, *testbed.Proxy, <-chan *Session) {
	t.Helper()
	p := testbed.SharedZookeeper(t).Proxy(t)
	conn, events, err := zk.Connect([]string{p.Addr()}, session, zk.WithLogInfo(false), zk.WithLogger(clientLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if silent {
		events = make(chan zk.Event)
	}
	c, err := Adopt(conn, events, Options{Base: "/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(false) })
	ended := make(chan *Session, 10)
	c.Start(func(s *Session) { ended <- s }, func(zk.Event) {})
	return conn, c, p, ended
}

// present waits for a session, for longer than a request waits.
func present(ctx context.Context, t *testing.T, c *Conn) *Session {
	t.Helper()
	for {
		s, err := c.Present(ctx)
		if err == nil {
			return s
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestOldSessionID ends the session while a caller is about to compare its ID:
// the next session does not count as over.
func TestOldSessionID(t *testing.T) {
	t.Parallel()
	conn, c, p, ended := adopted(t, time.Second, true)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	old := present(ctx, t, c)

	c.mu.Lock()
	asked := make(chan struct{})
	go func() {
		c.Session()
		close(asked)
	}()
	time.Sleep(50 * time.Millisecond) // until Session waits for the lock
	p.Cut()
	time.Sleep(3 * time.Second) // the session ends
	p.Reset()
	p.Heal()
	for conn.SessionID() == old.ID || conn.State() != zk.StateHasSession {
		if ctx.Err() != nil {
			t.Fatal("no other session")
		}
		time.Sleep(time.Millisecond)
	}
	next := newSession(conn.SessionID(), c.granted)
	c.sess = next // as if another caller had noticed
	c.mu.Unlock()
	<-asked
	if next.Over() || len(ended) > 0 {
		t.Error("the new session was ended with the old one")
	}
}

// TestSessionEnds ends the session: that is reported, once, and there is another one.
func TestSessionEnds(t *testing.T) {
	t.Parallel()
	_, c, p, ended := adopted(t, time.Second, false)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	old := present(ctx, t, c)
	if _, err := c.LeaseStart(ctx, old, time.Minute); err != nil {
		t.Error(err)
	}
	p.Cut()
	time.Sleep(3 * time.Second)
	p.Reset()
	p.Heal()
	if s := <-ended; s != old || !s.Over() {
		t.Errorf("session %x has ended, over: %v, want %x", s.ID, s.Over(), old.ID)
	}
	if now := present(ctx, t, c); now == old || now.Over() || len(ended) > 0 {
		t.Errorf("the session is %x, after %x, and %d more have ended", now.ID, old.ID, len(ended))
	}
	if _, err := c.LeaseStart(ctx, old, time.Minute); !errors.Is(err, ErrExpired) {
		t.Errorf("a lease of a session that is over: %v", err)
	}
}

// TestClosed: after Close nothing is sent, and no task is begun.
func TestClosed(t *testing.T) {
	c, err := Open(Options{Base: "/", Session: time.Second, Servers: []string{testbed.SharedZookeeper(t).Addr()}, Dial: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c.Start(func(*Session) {}, func(zk.Event) {})
	if err := c.Confirm(t.Context()); err != nil {
		t.Error(err)
	}
	ended := false
	c.Go(func(ctx context.Context) {
		<-ctx.Done()
		ended = true
	})
	c.Close(false)
	if !ended || c.Go(func(context.Context) {}) {
		t.Error("a task runs after Close")
	}
	if err := c.Confirm(t.Context()); !errors.Is(err, driver.ErrClosed) || WasSent(err) {
		t.Errorf("a request after Close: %v", err)
	}
}

// TestTimeoutNotShown refuses a client whose session timeout cannot be read.
func TestTimeoutNotShown(t *testing.T) {
	for name, conn := range map[string]any{
		"renamed": &struct{ timeoutMs int32 }{}, "another type": &struct{ sessionTimeoutMs string }{},
	} {
		if _, err := timeoutField(conn); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := timeoutField(&zk.Conn{}); err != nil {
		t.Error(err)
	}
}

package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A hole is a network path on which connections break without notice, as behind a firewall that forgets them. New ones
// work. Requests on the broken ones are lost, or arrive late.
type hole struct {
	mu    sync.Mutex
	conns []*holeConn
}

type holeConn struct {
	net.Conn
	dead   atomic.Bool
	closed chan struct{}
	once   sync.Once

	mu   sync.Mutex
	late bytes.Buffer // what was sent since it broke
}

func (h *hole) dial(ctx context.Context, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	hc := &holeConn{Conn: c, closed: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, hc)
	return hc, nil
}

func (h *hole) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.dead.Store(true)
	}
}

// arrive delivers what was sent on the broken connections, and ends them.
func (h *hole) arrive() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		c.mu.Lock()
		_, _ = c.Conn.Write(c.late.Bytes())
		c.late.Reset()
		c.mu.Unlock()
	}
}

// breakWhenSent ends the broken connections on which something is sent, for the client, until ctx ends; arrive delivers
// it nevertheless.
func (h *hole) breakWhenSent(ctx context.Context) {
	for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		h.mu.Lock()
		for _, c := range h.conns {
			c.mu.Lock()
			if c.late.Len() > 0 {
				c.once.Do(func() { close(c.closed) })
			}
			c.mu.Unlock()
		}
		h.mu.Unlock()
	}
}

func (h *hole) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		_ = c.Conn.Close()
	}
}

func (c *holeConn) Write(b []byte) (int, error) {
	if c.dead.Load() {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.late.Write(b)
	}
	return c.Conn.Write(b)
}

func (c *holeConn) Read(b []byte) (int, error) {
	if c.dead.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

func (c *holeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	if c.dead.Load() {
		return nil // the server is not notified
	}
	return c.Conn.Close()
}

// overHole is a pool over a hole.
func overHole(t *testing.T, srv *testbed.Server) (*hole, *sql.DB) {
	t.Helper()
	h := new(hole)
	t.Cleanup(h.close)
	gomysql.RegisterDialContext("hole"+t.Name(), h.dial)
	t.Cleanup(func() { gomysql.DeregisterDialContext("hole" + t.Name()) })
	c := configOf(t, srv.URL())
	c.Net = "hole" + t.Name()
	connector, err := gomysql.NewConnector(c)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(16)
	return h, db
}

// An unanswered request that arrives late takes nothing: the release is not confirmed until the request cannot arrive
// any more.
func TestLateRequestTakesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		h, db := overHole(t, srv)
		_, d, _ := fresh(t, db)
		first := request("first", false)
		g, err := d.Acquire(t.Context(), first)
		must(t, err)
		must(t, d.Release(t.Context(), first.Hold(g.Token)))
		for i, delay := range []time.Duration{500 * time.Millisecond, 3 * time.Second} {
			h.forget()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // enough to send it on a busy machine
			r := request(fmt.Sprint("late", i), i == 0)
			_, err = d.Acquire(ctx, r)
			cancel()
			if err == nil || errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("acquired without an answer: %v", err)
			}
			arrived := time.AfterFunc(delay, h.arrive)
			must(t, ignoreLost(removeTicket(t.Context(), d, r.Hold(0))))
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				queue, err := d.Inspect(t.Context(), "a")
				must(t, err)
				if len(queue) > 0 {
					t.Fatalf("delay %v: after the release was answered the queue is %+v", delay, queue)
				}
			}
			arrived.Stop()
		}
	})
}

// When all connections of a pool are broken without notice, a release is answered within two seconds nevertheless, and
// so is the release of an unanswered acquisition.
func TestConnectionsThatDieInSilence(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		h, db := overHole(t, srv)
		_, d, _ := fresh(t, db)
		for _, what := range []string{"release", "acquire"} {
			held := request("held", false)
			g, err := d.Acquire(t.Context(), held)
			must(t, err)
			conns := make([]*sql.Conn, 16)
			for i := range conns {
				conns[i], err = db.Conn(t.Context())
				must(t, err)
			}
			for _, c := range conns {
				must(t, c.Close())
			}
			h.forget()
			took := testbed.Elapsed(func() {
				hold := held.Hold(g.Token)
				if what == "acquire" {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					r := request("unknown", false)
					r.Name = "b"
					if _, err := d.Acquire(ctx, r); err == nil {
						t.Error("acquired without an answer")
					}
					cancel()
					hold = r.Hold(0)
				}
				if err := removeTicket(t.Context(), d, hold); err != nil && !errors.Is(err, driver.ErrLost) {
					t.Errorf("%s: %v", what, err)
				}
			})
			t.Logf("%s: answered after %v", what, took)
			if took > 2500*time.Millisecond { // what is under way may arrive for 2 s
				t.Errorf("%s: answered after %v", what, took)
			}
			must(t, ignoreLost(d.Release(t.Context(), held.Hold(g.Token))))
		}
	})
}

// A waiter whose process sleeps on a connection that is broken without notice learns of its grant before the lease ends.
func TestSleepThatIsBrokenInSilence(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		h, db := overHole(t, srv)
		_, d, prefix := fresh(t, db)
		_, direct := join(t, connect(t, srv, ""), prefix)
		held := request("held", false)
		g, err := direct.Acquire(t.Context(), held)
		must(t, err)
		var group sync.WaitGroup
		granted := behind(t, &group, d, driver.Request{Name: "a", ID: "waiter"})
		awaitSleep(t, connect(t, srv, ""), prefix)
		h.forget()
		must(t, direct.Release(t.Context(), held.Hold(g.Token)))
		granted()
		group.Wait()
	})
}

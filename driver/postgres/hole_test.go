package postgres_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A hole is a network path that breaks connections, for the client. The server gets later what is sent on them.
type hole struct {
	mu    sync.Mutex
	conns []*holeConn
}

type holeConn struct {
	net.Conn
	dead atomic.Bool
	held atomic.Bool // see swallow

	mu   sync.Mutex
	late bytes.Buffer // what was sent since it is dead
}

func (h *hole) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	hc := &holeConn{Conn: c}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, hc)
	return hc, nil
}

func (h *hole) each(f func(*holeConn)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.conns {
		f(c)
	}
}

// swallow keeps back what is sent on the present connections, which look whole.
func (h *hole) swallow() { h.each(func(c *holeConn) { c.held.Store(true) }) }

// forget breaks the present connections.
func (h *hole) forget() { h.each(func(c *holeConn) { c.dead.Store(true) }) }

// arrive delivers what was sent on the broken connections.
func (h *hole) arrive() {
	h.each(func(c *holeConn) {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, _ = c.Conn.Write(c.late.Bytes())
		c.late.Reset()
	})
}

func (c *holeConn) Write(b []byte) (int, error) {
	if !c.dead.Load() && !c.held.Load() {
		return c.Conn.Write(b)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late.Write(b)
}

func (c *holeConn) Read(b []byte) (int, error) {
	if c.dead.Load() {
		return 0, net.ErrClosed
	}
	return c.Conn.Read(b)
}

func (c *holeConn) Close() error {
	if c.dead.Load() || c.held.Load() {
		return nil // the server is not notified
	}
	return c.Conn.Close()
}

// overHole returns a driver over a hole that knows the database's clock, and one that is not.
func overHole(t *testing.T, opts ...postgres.Option) (h *hole, d, direct *postgres.Driver) {
	t.Helper()
	h, prefix := new(hole), unique()
	t.Cleanup(func() { h.each(func(c *holeConn) { _ = c.Conn.Close() }) })
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
		c.ConnConfig.DialFunc = h.dial
		c.MaxConns = 1
	})
	d, err := postgres.New(p, append(opts, postgres.WithPrefix(prefix))...)
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	direct, _ = newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	warm := driver.Request{Name: "warm", ID: "warm", TTL: time.Minute}
	for range 2 { // the second knows the clock
		g, err := d.Acquire(t.Context(), warm)
		ok(t, err)
		ok(t, d.Release(t.Context(), warm.Hold(g.Token)))
	}
	return h, d, direct
}

// ticketsLater delivers the late requests and returns the queue then.
func (h *hole) ticketsLater(t *testing.T, d *postgres.Driver) []driver.Ticket {
	t.Helper()
	h.arrive()
	time.Sleep(500 * time.Millisecond)
	queue, err := d.Inspect(t.Context(), "a")
	ok(t, err)
	if len(queue) == 0 {
		t.Log("the late request has not taken the lock")
	}
	return queue
}

// A try whose connection broke, and which was refused when it was sent again, does not say that it was refused: what
// was sent first may still arrive and take the lock.
func TestRefusedTryThatMayStillArrive(t *testing.T) {
	t.Parallel()
	h, d, direct := overHole(t, postgres.WithoutListen())
	held := driver.Request{Name: "a", ID: "held", TTL: time.Minute}
	g, err := direct.Acquire(t.Context(), held)
	ok(t, err)
	h.forget()
	r := driver.Request{Name: "a", ID: "try", TTL: time.Minute}
	if _, err = d.Acquire(t.Context(), r); err == nil {
		t.Fatal("acquired what another holds")
	}
	confirmed := errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrNoTicket)
	ok(t, direct.Release(t.Context(), held.Hold(g.Token)))
	if queue := h.ticketsLater(t, direct); len(queue) > 0 && confirmed {
		t.Errorf("%v, and the ticket is %+v", err, queue)
	}
	if !confirmed && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire: %v", err)
	}
}

// A waiter that loses its ticket, and whose first request was not answered, does not say that there is no ticket.
func TestLostWaitThatMayStillArrive(t *testing.T) {
	t.Parallel()
	h, d, direct := overHole(t)
	held := driver.Request{Name: "a", ID: "held", TTL: time.Minute}
	g, err := direct.Acquire(t.Context(), held)
	ok(t, err)
	h.forget()
	queued, answer := make(chan struct{}), make(chan error, 1)
	r := driver.Request{Name: "a", ID: "waiter", TTL: time.Minute, Wait: true, Joined: func() { close(queued) }}
	go func() {
		_, err := d.Acquire(t.Context(), r)
		answer <- err
	}()
	<-queued
	queue, err := direct.Inspect(t.Context(), "a")
	ok(t, err)
	waitFor(t, "it listens", d.Hears)
	ok(t, direct.Break(t.Context(), "a", queue[1].Token))
	err = <-answer
	confirmed := errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNoTicket)
	ok(t, direct.Release(t.Context(), held.Hold(g.Token)))
	if queue := h.ticketsLater(t, direct); len(queue) > 0 && confirmed {
		t.Errorf("%v, and the ticket is %+v", err, queue)
	}
	if !confirmed && !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire: %v", err)
	}
}

// A ticket that was granted to the second of two requests, and released, may be taken by the first, which arrives later:
// the release is not confirmed before that is impossible.
func TestReleasedTicketThatMayStillArrive(t *testing.T) {
	t.Parallel()
	h, d, direct := overHole(t)
	h.forget()
	r := driver.Request{Name: "a", ID: "one", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	err = d.Release(t.Context(), r.Hold(g.Token))
	if queue := h.ticketsLater(t, direct); len(queue) > 0 && (err == nil || errors.Is(err, driver.ErrLost)) {
		t.Errorf("released: %v, and the ticket is %+v", err, queue)
	}
	is(t, err, driver.ErrUnavailable)
	h.confirmed(t, d, direct, r.Hold(0))
}

// A request that was given up, and arrives after its ticket was released, takes no ticket that is left.
func TestGivenUpTicketThatMayStillArrive(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		h, d, direct := overHole(t, postgres.WithoutListen())
		h.swallow()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*time.Millisecond, cancel)
		r := driver.Request{Name: "a", ID: "given-up", TTL: time.Minute, Wait: wait}
		_, err := d.Acquire(ctx, r)
		is(t, err, context.Canceled)
		h.forget()
		err = d.Release(t.Context(), r.Hold(0))
		if err == nil || errors.Is(err, driver.ErrLost) {
			t.Errorf("wait %v: the release of a ticket that may still arrive: %v", wait, err)
		}
		h.confirmed(t, d, direct, r.Hold(0))
	}
}

// confirmed repeats the release of a ticket until it is confirmed, and delivers the late requests then.
func (h *hole) confirmed(t *testing.T, d, direct *postgres.Driver, k driver.Hold) {
	t.Helper()
	began := time.Now()
	waitFor(t, "the release is confirmed", func() bool {
		err := d.Release(t.Context(), k)
		return err == nil || errors.Is(err, driver.ErrLost)
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the release was confirmed after %v", took)
	}
	if queue := h.ticketsLater(t, direct); len(queue) > 0 {
		t.Errorf("the release was confirmed, and the ticket is %+v", queue)
	}
}

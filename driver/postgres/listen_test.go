package postgres_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A driver behind a pooler leaves no LISTEN on the sessions of the pooler.
func TestNothingListensBehindPgBouncer(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	at := pgbouncer(t, srv)
	d, p := newDriver(t, at, postgres.WithPrefix(unique()))
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	time.Sleep(2500 * time.Millisecond) // it has tried to listen
	var txs []pgx.Tx
	for range 4 { // all sessions that the pooler has, each in a transaction
		tx := begin(t, p)
		txs = append(txs, tx)
		var n int
		ok(t, tx.QueryRow(t.Context(), "SELECT count(*) FROM pg_listening_channels()").Scan(&n))
		if n > 0 {
			t.Errorf("a session of the pooler listens on %d channels", n)
		}
	}
	for _, tx := range txs {
		ok(t, tx.Rollback(t.Context()))
	}
	ok(t, d.Release(t.Context(), r.Hold(g.Token)))
}

// The driver listens even if the database takes seconds to answer.
func TestListensToASlowDatabase(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	proxy, prefix := srv.Proxy(t), unique()
	var n atomic.Int64
	p := newPool(t, proxy.URL(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = counter{&n} })
	d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithLiveness(20*time.Second))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	holder, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := holder.Acquire(t.Context(), r)
	ok(t, err)
	ok(t, p.Ping(t.Context()))
	proxy.Delay(700 * time.Millisecond)
	done, joined := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: "2", TTL: time.Minute, Wait: true, Renewed: true, Joined: func() { close(joined) }})
		done <- err
	}()
	<-joined
	time.Sleep(8 * time.Second) // it is about to listen, or has given up
	proxy.Delay(0)
	n.Store(0)
	time.Sleep(3 * time.Second)
	if n := n.Load(); n > 4 || !d.Hears() {
		t.Errorf("a waiter that should be notified took %d statements in 3 s; it listens: %v", n, d.Hears())
	}
	took := srv.Elapsed(func() {
		ok(t, holder.Release(t.Context(), r.Hold(g.Token)))
		ok(t, <-done)
	})
	if took > 100*time.Millisecond {
		t.Errorf("the waiter was granted after %v", took)
	}
}

// slowClose is a connection whose Close waits.
type slowClose struct {
	net.Conn
	closing chan<- struct{}
	wait    <-chan struct{}
}

func (c slowClose) Close() error {
	c.closing <- struct{}{}
	<-c.wait
	return c.Conn.Close()
}

// A listener that ends because nothing was held for a while does not reset the state of the next one, which has begun
// meanwhile: otherwise the driver would poll.
func TestListensAgainWhileAListenerEnds(t *testing.T) {
	t.Parallel()
	closing, wait := make(chan struct{}, 100), make(chan struct{})
	var slow atomic.Bool
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			if err == nil && slow.Load() {
				conn = slowClose{conn, closing, wait}
			}
			return conn, err
		}
	})
	d, err := postgres.New(p, postgres.WithPrefix(unique()))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	end := sync.OnceFunc(func() { close(wait) })
	t.Cleanup(end)
	d.ListenFor(300 * time.Millisecond)
	_, err = d.List(t.Context()) // the pool has a connection
	ok(t, err)
	slow.Store(true)
	acquire := func(id string) (release func()) {
		r := driver.Request{Name: "a", ID: id, TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		ok(t, err)
		waitFor(t, "it listens", d.Hears)
		return func() { ok(t, d.Release(t.Context(), r.Hold(g.Token))) }
	}
	acquire("1")()
	waitFor(t, "the listener ends", func() bool { return len(closing) > 0 })
	slow.Store(false)
	release := acquire("2")
	end()
	time.Sleep(200 * time.Millisecond) // the first has ended
	if !d.Hears() {
		t.Error("the driver listens, and does not know it")
	}
	release()
}

// The holder of a lock that is broken learns why it was lost.
func TestCauseOfABreak(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	notified := make(chan error, 1)
	d.NotifyLoss(func(_ driver.Hold, cause error) { notified <- cause })
	other, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	waitFor(t, "it listens", d.Hears)
	took := testbed.Elapsed(func() {
		ok(t, other.Break(t.Context(), "a", g.Token))
		select {
		case err := <-notified:
			if !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "the ticket was removed from the queue") {
				t.Errorf("the cause is %v", err)
			}
		case <-time.After(10 * time.Second):
			t.Error("the holder was not notified")
		}
	})
	if took > time.Second {
		t.Errorf("the holder was notified after %v", took)
	}
}

// A ticket with a minimum hold keeps its whole lease when its process ends, even
// if it waited and has just been granted.
func TestMinHoldOfAWaiter(t *testing.T) {
	t.Parallel()
	prefix := unique()
	holder, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithLiveness(2*time.Second)) // less than its minimum hold
	ok(t, err)
	first := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := holder.Acquire(t.Context(), first)
	ok(t, err)
	done, joined := make(chan driver.Grant, 1), make(chan struct{})
	go func() {
		g, err := d.Acquire(t.Context(), driver.Request{
			Name: "a", ID: "2", TTL: 3 * time.Second, MinHold: 3 * time.Second, Wait: true, Renewed: true,
			Joined: func() { close(joined) },
		})
		if err != nil {
			t.Error(err)
		}
		done <- g
	}()
	<-joined
	ok(t, holder.Release(t.Context(), first.Hold(g.Token)))
	next := <-done
	until := next.Asked.Add(3 * time.Second)
	ok(t, d.Close()) // and its process ends
	for time.Now().Before(until) {
		r := driver.Request{Name: "a", ID: unique(), TTL: time.Minute}
		g, err := holder.Acquire(t.Context(), r)
		if err == nil && !time.Now().Before(until) { // the answer was late, or the request
			ok(t, holder.Release(t.Context(), r.Hold(g.Token)))
			break
		}
		if !errors.Is(err, driver.ErrNotAcquired) {
			t.Fatalf("%v before its minimum hold was over: %v", time.Until(until), err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	waitFor(t, "it is free", func() bool {
		_, err := holder.Acquire(t.Context(), driver.Request{Name: "a", ID: unique(), TTL: time.Second})
		return err == nil
	})
}

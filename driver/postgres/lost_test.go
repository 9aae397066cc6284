package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestKilledBackends(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	prefix, app := unique(), unique()
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = app })
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l := newLocker(t, d)
	other, admin := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	lo := newLocker(t, other)
	kill := func() {
		t.Helper()
		_, err := admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1", app)
		ok(t, err)
	}
	held, err := l.Acquire(t.Context(), "held", locker.WithTTL(4*time.Second))
	ok(t, err)
	k, err := lo.Acquire(t.Context(), "waited")
	ok(t, err)
	w := async(t, l, "waited")
	queued(t, lo, "waited", 2)
	for range 5 {
		kill()
		another, err := l.Acquire(t.Context(), "another")
		ok(t, err)
		kill()
		ok(t, another.Release(t.Context()))
		time.Sleep(time.Second) // five kills within one and a half TTLs
	}
	ok(t, held.Err())
	kill()
	ok(t, k.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
	ok(t, held.Release(t.Context()))
}

func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	prefix := unique()
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["statement_timeout"] = "100" })
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l := newLocker(t, d)
	admin := newPool(t, srv.URL(), nil)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	ok(t, k.Release(t.Context()))
	tx, err := admin.Begin(t.Context())
	ok(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+prefix+"_tickets")
	ok(t, err)
	w := async(t, l, "a")
	time.Sleep(300 * time.Millisecond) // several statement timeouts
	ok(t, tx.Rollback(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
}

// idles is a tracer of a program that stops before a ticket is requested, once.
type idles struct{ next *atomic.Bool }

func (i idles) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "_acquire") && i.next.Swap(false) {
		time.Sleep(300 * time.Millisecond)
	}
	return ctx
}

func (idles) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Where a request needs a transaction of several statements, the server may end it for being idle: it is sent again.
func TestIdleInTransaction(t *testing.T) {
	t.Parallel()
	var idle atomic.Bool
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		c.ConnConfig.RuntimeParams["idle_in_transaction_session_timeout"] = "100"
		c.ConnConfig.Tracer = idles{&idle}
	})
	d, err := postgres.New(p, postgres.WithPrefix(unique()), postgres.WithoutListen())
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	for _, name := range []string{"a", "b"} { // the first learns of the isolation level
		_, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: name, TTL: time.Minute})
		ok(t, err)
		idle.Store(true)
	}
}

func TestBreakTellsTheHolder(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	prefix := unique()
	d, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	other, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	lo := newLocker(t, other)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	w := async(t, l, "a")
	queued(t, lo, "a", 2)
	waitFor(t, "it listens", d.Hears)
	took := testbed.Elapsed(func() {
		ok(t, lo.Break(t.Context(), "a", k.Token()))
		<-k.Done()
	})
	if took > time.Second {
		t.Errorf("the loss was notified after %v", took)
	}
	is(t, k.Err(), locker.ErrLost)
	ok(t, got(t, w).Release(t.Context()))
	is(t, lo.Break(t.Context(), "a", k.Token()), driver.ErrLost)
}

func TestTokensGrowAfterLoss(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	ok(t, k.Release(t.Context()))
	// As after a failover to a replica that missed the last transactions.
	_, err = p.Exec(t.Context(), "SELECT setval('"+prefix+"_token', 1)")
	ok(t, err)
	time.Sleep(20 * time.Millisecond) // any failover takes longer
	again, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	if again.Token() <= k.Token() {
		t.Errorf("token %d after %d", again.Token(), k.Token())
	}
	if behind := time.Since(time.UnixMicro(int64(again.Token()))); behind > 5*time.Second {
		t.Errorf("token %d is %v behind the clock", again.Token(), behind)
	}
	// The clock goes back: the sequence does not.
	_, err = p.Exec(t.Context(), fmt.Sprintf("SELECT setval('%s_token', %d)", prefix, again.Token()+uint64(time.Hour.Microseconds())))
	ok(t, err)
	ok(t, again.Release(t.Context()))
	third, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	if third.Token() != again.Token()+uint64(time.Hour.Microseconds())+1 {
		t.Errorf("token %d does not follow the sequence", third.Token())
	}
	ok(t, third.Release(t.Context()))
}

// A lease that is over is not renewed, although its row is still there. Nor is a ticket that waits.
func TestRenewOfWhatIsNotHeld(t *testing.T) {
	t.Parallel()
	d, _ := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(unique()))
	r := driver.Request{Name: "a", ID: "one", TTL: 20 * time.Millisecond}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	time.Sleep(30 * time.Millisecond)
	is(t, d.Renew(t.Context(), r.Hold(g.Token), time.Minute), driver.ErrLost)

	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "b")
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	w := driver.Request{Name: "b", ID: "two", TTL: time.Second, Shared: true, Wait: true}
	queued := make(chan struct{})
	w.Joined = func() { close(queued) }
	done := make(chan error, 1)
	go func() { _, err := d.Acquire(ctx, w); done <- err }()
	<-queued
	queue, err := l.Inspect(t.Context(), "b")
	ok(t, err)
	is(t, d.Renew(t.Context(), w.Hold(queue.Tickets[1].Token), time.Minute), driver.ErrLost)
	cancel()
	is(t, <-done, context.Canceled)
	_ = d.Release(t.Context(), w.Hold(0)) // the background task may have done so
	ok(t, k.Release(t.Context()))
}

// A holder that waited relies on its lease no longer than the store keeps it, which is less than a TTL
// until the lease is renewed.
func TestHandedOverAndCutOff(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	prefix := unique()
	holder, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	third, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	proxy := srv.Proxy(t)
	p := newPool(t, proxy.URL(), nil)
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	t.Cleanup(func() { proxy.Heal(); ok(t, d.Close()) })
	request := func(id string) driver.Request {
		return driver.Request{Name: "a", ID: id, TTL: 30 * time.Second, Renewed: true, Wait: true}
	}
	one := request("one")
	g, err := holder.Acquire(t.Context(), one)
	ok(t, err)
	acquire := func(d *postgres.Driver, id string) <-chan driver.Grant {
		c := make(chan driver.Grant, 1)
		r := request(id)
		queued := make(chan struct{})
		r.Joined = func() { close(queued) }
		go func() {
			g, err := d.Acquire(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			c <- g
		}()
		<-queued
		return c
	}
	two := acquire(d, "two")
	three := acquire(third, "three")
	ok(t, holder.Release(t.Context(), one.Hold(g.Token)))
	mine := <-two
	proxy.Cut()
	until := mine.Asked.Add(mine.Claim)
	if left := time.Until(until); left < postgres.DefaultLiveness/2 {
		t.Errorf("the lease has only %v left when it is granted", left)
	}
	<-three
	if early := time.Until(until); early > 0 {
		t.Errorf("the next was granted %v before the holder knew of its loss", early)
	}
	if late := -time.Until(until); late > 2500*time.Millisecond {
		t.Errorf("the next was granted %v after the lease of one that was cut off", late)
	}
}

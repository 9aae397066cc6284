package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

// In stricter isolation a transaction would see the queue as it was before it took the lock of the name.
func TestStricterIsolation(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	prefix := unique()
	var ls []*locker.Client
	for range 3 {
		p := newPool(t, srv.URL(), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
			c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
		})
		d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithoutCreate())
		ok(t, err)
		t.Cleanup(func() { ok(t, d.Close()) })
		ls = append(ls, newLocker(t, d))
	}
	admin := newPool(t, srv.URL(), nil)
	sql, err := postgres.Schema(postgres.WithPrefix(prefix))
	ok(t, err)
	_, err = admin.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	contend(t, ls, 30)
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			d, err := postgres.New(p, postgres.WithPrefix(unique()))
			ok(t, err)
			t.Cleanup(func() { ok(t, d.Close()) })
			l := newLocker(t, d)
			name := "\x00'\\\" ü"
			k, err := l.Acquire(t.Context(), name, locker.WithNote(name))
			ok(t, err)
			ok(t, k.Extend(t.Context(), time.Minute))
			w := async(t, l, name)
			queued(t, l, name, 2)
			queue, err := l.Inspect(t.Context(), name)
			ok(t, err)
			if queue.Tickets[0].Note != name {
				t.Errorf("the note came out as %q", queue.Tickets[0].Note)
			}
			names, err := l.List(t.Context())
			ok(t, err)
			if len(names) != 1 || names[0] != name {
				t.Errorf("List is %q", names)
			}
			ok(t, k.Release(t.Context()))
			ok(t, got(t, w).Release(t.Context()))
		})
	}
}

// The user keeps the only connection of the pool: waiters need none, and renewals and releases use one beside it.
func TestPoolOfOne(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	d, err := postgres.New(p, postgres.WithPrefix(unique()))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l, renewed := newRenewing(t, d)
	k, err := l.Acquire(t.Context(), "a", locker.WithTTL(6*time.Second))
	ok(t, err)
	var ws []<-chan *locker.Lock
	for range 20 {
		ws = append(ws, async(t, l, "a"))
	}
	queued(t, l, "a", 21)
	mine, err := p.Acquire(t.Context())
	ok(t, err)
	defer mine.Release()
	renewed.await(t, k)
	ok(t, k.Release(t.Context()))
	first := make(chan *locker.Lock, len(ws))
	for _, w := range ws {
		go func() {
			if k := <-w; k != nil {
				first <- k
			}
		}()
	}
	for range ws {
		ok(t, got(t, first).Release(t.Context()))
	}
}

// The user keeps the only connection of the pool, in a transaction that has the lock of a name. Who wants the name waits for that on
// a connection beside the pool, which renewals do not need.
func TestRenewalBesideARequestThatWaits(t *testing.T) {
	t.Parallel()
	prefix := unique()
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	d, err := postgres.New(p, postgres.WithPrefix(prefix), postgres.WithoutListen())
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	r := driver.Request{Name: "b", ID: unique(), TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	tx := begin(t, p)
	_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock("+prefix+"_key"+postgres.Version+"('a'))")
	ok(t, err)
	waiting, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var group sync.WaitGroup
	for i := range 3 {
		group.Go(func() {
			_, _ = d.Acquire(waiting, driver.Request{Name: "a", ID: fmt.Sprint(i), TTL: time.Second, Wait: true})
		})
	}
	time.Sleep(time.Second) // one waits in the database, and the others for its connection
	ctx, end := context.WithTimeout(t.Context(), 2*time.Second)
	defer end()
	if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); err != nil {
		t.Errorf("a renewal: %v", err)
	}
	cancel()
	group.Wait()
	ok(t, tx.Rollback(t.Context()))
}

// A request that the server does not answer ends with its context, and costs only its connection.
func TestContextEndsUnanswered(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	_, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute})
	ok(t, err)
	tx, err := p.Begin(t.Context())
	ok(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+prefix+"_tickets")
	ok(t, err)
	for _, limit := range []time.Duration{time.Millisecond, 300 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		took := testbed.Elapsed(func() { _, err = d.Inspect(ctx, "a") })
		cancel()
		is(t, err, context.DeadlineExceeded)
		if took > limit+time.Second {
			t.Errorf("with %v it took %v", limit, took)
		}
	}
	ok(t, tx.Rollback(t.Context()))
	for range 10 {
		ts, err := d.Inspect(t.Context(), "a")
		ok(t, err)
		if len(ts) != 1 {
			t.Fatalf("%d tickets, want 1", len(ts))
		}
	}
}

// How many statements an acquisition, a release and waiters need.
func TestRequests(t *testing.T) {
	var n atomic.Int64
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = counter{&n} })
	d, err := postgres.New(p, postgres.WithPrefix(unique()))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l := newLocker(t, d)
	cycle := func() {
		k, err := l.Acquire(t.Context(), "a")
		ok(t, err)
		ok(t, k.Release(t.Context()))
	}
	cycle()
	waitFor(t, "it listens", d.Hears)
	n.Store(0)
	for range 100 {
		cycle()
	}
	if n.Load() != 200 {
		t.Errorf("100 cycles took %d statements, want 200", n.Load())
	}
	for _, waiters := range []int{10, 1000} {
		name := unique()
		k, err := l.Acquire(t.Context(), name)
		ok(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range waiters {
			group.Go(func() { _, _ = l.Acquire(ctx, name) })
		}
		queued(t, l, name, waiters+1)
		n.Store(0)
		began := time.Now()
		time.Sleep(3 * time.Second)
		rate := float64(n.Load()) / time.Since(began).Seconds()
		t.Logf("%d waiters: %.1f statements a second", waiters, rate)
		if rate > 10./3 {
			t.Errorf("%d waiters took %.1f statements a second, want at most 10 in 3 s", waiters, rate)
		}
		cancel()
		group.Wait()
		ok(t, k.Release(t.Context()))
	}
}

// A counter counts statements, without those of a sweep: one driver in ten sweeps when it is first used.
type counter struct{ n *atomic.Int64 }

func (c counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, s pgx.TraceQueryStartData) context.Context {
	if !strings.Contains(s.SQL, "_sweep") {
		c.n.Add(1)
	}
	return ctx
}

func (counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestURL(t *testing.T) {
	for url, want := range map[string]string{
		"postgres://u:secret@h/db?prefiks=x":          `unknown parameter "prefiks"`,
		"postgres://u:secret@h/db?prefix=a$b":         "prefix",
		"postgres://u:secret@h/db?liveness=1ms":       "liveness",
		"postgres://u:secret@h/db?sslmode=secretish":  "sslmode",
		"postgresql://u:secret@h/db?pool_max_conns=x": "pool_max_conns",
		"postgres://u:secret@h/db?schema=":            "schema",
	} {
		_, err := locker.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: the error tells the password: %v", url, err)
		}
	}
	d, err := open(t.Context(), "postgresql://u:secret@10.1.2.3:5433/db?pool_max_conns=3&ttl=3s&prefix=x&listen=false&sslmode=disable")
	ok(t, err)
	defer d.Close()
	if s := fmt.Sprint(d); s != "postgres 10.1.2.3:5433/db" {
		t.Errorf("String is %q", s)
	}
}

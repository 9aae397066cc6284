package postgres_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
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

// A database, or a role, may be configured so that transactions are read only by default.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"read committed", "repeatable read"} {
		p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["default_transaction_read_only"] = "on"
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
		})
		d, err := postgres.New(p, postgres.WithPrefix(unique()))
		ok(t, err)
		t.Cleanup(func() { ok(t, d.Close()) })
		l := newLocker(t, d)
		var k *locker.Lock
		took := testbed.Elapsed(func() { k, err = l.Acquire(t.Context(), "a") })
		ok(t, err)
		if took > 2*time.Second {
			t.Errorf("%s: the first took %v", level, took)
		}
		w := async(t, l, "a")
		queued(t, l, "a", 2)
		ok(t, k.Release(t.Context()))
		ok(t, got(t, w).Release(t.Context()))
	}
}

// A database may write bytes in the older of its two forms. That shows where results are sent as text, as they are behind some
// poolers.
func TestByteaOutput(t *testing.T) {
	t.Parallel()
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
		c.ConnConfig.RuntimeParams["bytea_output"] = "escape"
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	})
	d, err := postgres.New(p, postgres.WithPrefix(unique()))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l := newLocker(t, d)
	const name, note = "a\\\x00\u00e9", "\\x61"
	k, err := l.Acquire(t.Context(), name, locker.WithNote(note))
	ok(t, err)
	w := async(t, l, name)
	queued(t, l, name, 2)
	q, err := l.Inspect(t.Context(), name)
	ok(t, err)
	if q.Tickets[0].Note != note {
		t.Errorf("the note is %q", q.Tickets[0].Note)
	}
	names, err := l.List(t.Context())
	ok(t, err)
	if len(names) != 1 || names[0] != name {
		t.Errorf("the names are %q", names)
	}
	_, err = d.Sweep(t.Context())
	ok(t, err)
	time.Sleep(postgres.DefaultLiveness + time.Second)
	ok(t, k.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
}

// The connection beside the pool is opened as the pool does: here, by a user who may do nothing before AfterConnect has set a
// role.
func TestConnectionsAreMadeAsThePoolMakesThem(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	admin := newPool(t, srv.URL(), nil)
	owner, user, schema, secret := unique(), unique(), unique(), unique()
	exec := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), strings.NewReplacer("OWNER", owner, "USER", user, "{schema}", schema, "SECRET", secret).Replace(sql), pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	exec("CREATE ROLE OWNER; CREATE ROLE USER LOGIN NOINHERIT IN ROLE OWNER PASSWORD 'SECRET'; CREATE SCHEMA {schema} AUTHORIZATION OWNER")
	var made atomic.Int64
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.User, c.ConnConfig.Password = user, secret
		c.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
			made.Add(1)
			_, err := c.Exec(ctx, "SET ROLE "+owner)
			return err
		}
	})
	d, err := postgres.New(p, postgres.WithSchema(schema), postgres.WithoutListen())
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l, renewed := newRenewing(t, d)
	k, err := l.Acquire(t.Context(), "a", locker.WithTTL(5*time.Second))
	ok(t, err)
	mine, err := p.Acquire(t.Context()) // all that there is
	ok(t, err)
	defer mine.Release()
	other, err := l.TryAcquire(t.Context(), "b")
	ok(t, err)
	ok(t, other.Release(t.Context()))
	if n := made.Load(); n < 3 { // for the pool, and for each request
		t.Errorf("AfterConnect was called %d times, want 3 or more", n)
	}
	renewed.await(t, k)
	ok(t, k.Release(t.Context()))
}

// A panic in the user's code that connects frees the connection beside the pool.
func TestPanicBesideThePool(t *testing.T) {
	t.Parallel()
	var panics atomic.Bool
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.AfterConnect = func(context.Context, *pgx.Conn) error {
			if panics.Load() {
				panic("of the user")
			}
			return nil
		}
	})
	d, err := postgres.New(p, postgres.WithPrefix(unique()), postgres.WithoutListen())
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	r := driver.Request{Name: "a", ID: unique(), TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	mine, err := p.Acquire(t.Context()) // all that there is
	ok(t, err)
	defer mine.Release()
	renew := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		return d.Renew(ctx, r.Hold(g.Token), time.Minute)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		panics.Store(true)
		_ = renew()
	}()
	panics.Store(false)
	ok(t, renew())
}

func TestURLTellsNoSecret(t *testing.T) {
	for _, query := range []string{
		"sslpassword=s3cret&sslmode=bogus", "sslpassword=s3cret&pool_max_conns=x", "sslpassword=s3%60cret&connect_timeout=x",
		"options=-c%20my.password=s3cret&target_session_attrs=any%60%3A", "sslpassword=s3cret&default_query_exec_mode=x",
	} {
		_, err := locker.Open(t.Context(), "postgres://u:s3cret%40@h/db?"+query)
		if err == nil {
			t.Errorf("%s: no error", query)
			continue
		}
		if s := fmt.Sprintf("%v %+v", err, err); strings.Contains(s, "s3") || strings.Contains(s, "cret") {
			t.Errorf("%s: the error tells a secret: %s", query, s)
		}
	}
}

// panicking is a tracer of the user that panics once.
type panicking struct{ panics *atomic.Bool }

func (p panicking) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	if p.panics.Swap(false) {
		panic("of the user")
	}
	return ctx
}

func (panicking) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// After a panic in the user's tracer nothing waits for the end of the request's context, which interrupts no other request.
func TestPanicInATracer(t *testing.T) {
	var panics atomic.Bool
	p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) { c.ConnConfig.Tracer = panicking{&panics} })
	d, err := postgres.New(p, postgres.WithPrefix(unique()), postgres.WithoutListen())
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	ok(t, d.Ping(t.Context())) // creates the tables
	ctx, cancel := context.WithCancel(t.Context())
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		panics.Store(true)
		_, _ = d.Inspect(ctx, "a")
	}()
	cancel()
	time.Sleep(100 * time.Millisecond)
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; bytes.Contains(stacks, []byte("postgres.interruptible")) {
		t.Error("a goroutine is left")
	}
	_, err = d.Inspect(t.Context(), "a")
	ok(t, err)
}

// writing is a tracer of the user that writes what it is shown as JSON.
type writing struct {
	*testing.T
	mu  sync.Mutex
	log strings.Builder
}

func (w *writing) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	text, err := json.Marshal(data)
	if err != nil {
		w.Errorf("%s: %v", data.SQL, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log.Write(text)
	return ctx
}

func (*writing) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A user's tracer can write the arguments of every statement as JSON, and is shown no password.
func TestTracerThatWritesJSON(t *testing.T) {
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		w := &writing{T: t}
		p := newPool(t, testbed.SharedPostgres(t).URL(), func(c *pgxpool.Config) {
			c.ConnConfig.Password, c.ConnConfig.Tracer, c.ConnConfig.DefaultQueryExecMode = "s3cret", w, mode
		})
		d, err := postgres.New(p, postgres.WithPrefix(unique()))
		ok(t, err)
		l := locker.New(d)
		k, err := l.Acquire(t.Context(), "a", locker.WithNote("a note"))
		ok(t, err)
		next := async(t, l, "a")
		queued(t, l, "a", 2)
		waitFor(t, "it listens", d.Hears)
		ok(t, k.Extend(t.Context(), time.Minute))
		ok(t, k.Release(t.Context()))
		ok(t, l.Break(t.Context(), "a", got(t, next).Token()))
		_, err = d.Sweep(t.Context())
		ok(t, err)
		ok(t, l.Close())
		w.mu.Lock()
		if log := w.log.String(); !strings.Contains(log, "_acquire"+postgres.Version) || !strings.Contains(log, "LISTEN") || strings.Contains(log, "s3cret") {
			t.Errorf("mode %v: the log is %s", mode, log)
		}
		w.mu.Unlock()
	}
}

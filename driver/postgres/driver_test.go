package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
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

// unique is a prefix or a name that nobody else uses.
func unique() string { return "t" + strings.ToLower(rand.Text())[:12] }

// newPool opens a pool that ends with the test.
func newPool(t *testing.T, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(url)
	ok(t, err)
	if change != nil {
		change(c)
	}
	p, err := pgxpool.NewWithConfig(t.Context(), c)
	ok(t, err)
	t.Cleanup(p.Close)
	return p
}

// newDriver makes a driver over a pool of its own.
func newDriver(t *testing.T, url string, opts ...postgres.Option) (*postgres.Driver, *pgxpool.Pool) {
	t.Helper()
	p := newPool(t, url, nil)
	d, err := postgres.New(p, opts...)
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	return d, p
}

func newLocker(t *testing.T, d driver.Driver) *locker.Client {
	t.Helper()
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, want %v", err, want)
	}
}

// waitFor waits for a condition that has to come about.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 15 s: %s", what)
		}
	}
}

// queued waits until n tickets stand in line.
func queued(t *testing.T, l *locker.Client, name string, n int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d tickets in line", n), func() bool {
		line, err := l.Inspect(t.Context(), name)
		return err == nil && len(line.Tickets) == n
	})
}

// async acquires in the background.
func async(t *testing.T, l *locker.Client, name string, opts ...locker.Option) <-chan *locker.Lock {
	t.Helper()
	c := make(chan *locker.Lock, 1)
	go func() {
		defer close(c)
		k, err := l.Acquire(t.Context(), name, opts...)
		if err != nil {
			t.Error(err)
			return
		}
		c <- k
	}()
	return c
}

// got waits for what async has acquired.
func got(t *testing.T, c <-chan *locker.Lock) *locker.Lock {
	t.Helper()
	select {
	case k := <-c:
		if k == nil {
			t.FailNow()
		}
		return k
	case <-time.After(20 * time.Second):
		t.Fatal("not acquired in 20 s")
		return nil
	}
}

func TestTwoExclusiveHoldersAreImpossible(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	_, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	for what, slot := range map[string]string{"its slot": "0", "a slot of its own": "token + 1"} {
		_, err = p.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s_tickets
			SELECT name, %s, token + 1, 'forged', process, queued, held, claim, shared, permits, ttl, since, expires_at, owner, note
			FROM %[1]s_tickets`, prefix, slot))
		if err == nil {
			t.Errorf("the schema took a second exclusive holder in %s", what)
		}
	}
}

func TestSchemaOnFirstUse(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	opts := []postgres.Option{postgres.WithSchema(`odd "schema`), postgres.WithPrefix(unique() + `'" ü`)}
	var group sync.WaitGroup
	for range 8 {
		d, _ := newDriver(t, srv.URL(), opts...)
		l := newLocker(t, d)
		group.Go(func() {
			k, err := l.Acquire(t.Context(), unique())
			if err != nil {
				t.Error(err)
				return
			}
			if err := k.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

func TestSchemaByAnotherUser(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	admin := newPool(t, srv.URL(), nil)
	user, prefix := unique(), unique()
	exec := func(sql string) {
		t.Helper()
		_, err := admin.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	exec("CREATE USER " + user)
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), "DROP OWNED BY "+user+"; DROP USER "+user, pgx.QueryExecModeSimpleProtocol)
	})
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.ConnConfig.User = user })
	for _, opt := range []postgres.Option{nil, postgres.WithoutCreate()} {
		d, err := postgres.New(p, postgres.WithPrefix(prefix), opt)
		ok(t, err)
		_, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Second})
		if err == nil || !strings.Contains(err.Error(), "postgres.Schema") {
			t.Errorf("without tables: %v", err)
		}
		ok(t, d.Close())
	}
	sql, err := postgres.Schema(postgres.WithPrefix(prefix))
	ok(t, err)
	exec(sql)
	exec(sql) // again
	exec(fmt.Sprintf(`GRANT SELECT, INSERT, UPDATE, DELETE ON %[1]s_tickets, %[1]s_processes TO %[2]s;
		GRANT USAGE, SELECT, UPDATE ON SEQUENCE %[1]s_token TO %[2]s`, prefix, user))
	d, err := postgres.New(p, postgres.WithPrefix(prefix))
	ok(t, err)
	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	w := async(t, l, "a")
	queued(t, l, "a", 2)
	ok(t, k.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
}

// Stricter isolation would show a line as it was before its lock was taken.
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

// contend increases a counter under a lock, from all of ls.
func contend(t *testing.T, ls []*locker.Client, times int) {
	t.Helper()
	var (
		group  sync.WaitGroup
		inside atomic.Int32
		last   atomic.Uint64
		name   = unique()
	)
	for _, l := range ls {
		group.Go(func() {
			for range times {
				k, err := l.Acquire(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d inside at once", n)
				}
				if was := last.Swap(k.Token()); was >= k.Token() {
					t.Errorf("token %d after %d", k.Token(), was)
				}
				inside.Add(-1)
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func TestProtocols(t *testing.T) {
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
			line, err := l.Inspect(t.Context(), name)
			ok(t, err)
			if line.Tickets[0].Note != name {
				t.Errorf("the note came out as %q", line.Tickets[0].Note)
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

// A pool of one connection, which the user keeps: waiters need none, and
// renewals and releases go beside it.
func TestPoolOfOne(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	p := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.MaxConns = 1 })
	d, err := postgres.New(p, postgres.WithPrefix(unique()))
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "a", locker.WithTTL(time.Second))
	ok(t, err)
	var ws []<-chan *locker.Lock
	for range 20 {
		ws = append(ws, async(t, l, "a"))
	}
	queued(t, l, "a", 21)
	mine, err := p.Acquire(t.Context())
	ok(t, err)
	select {
	case <-k.Done():
		t.Error("the lock was lost while the user had the pool's only connection")
	case <-time.After(2500 * time.Millisecond):
	}
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
	mine.Release()
}

func TestKilledBackends(t *testing.T) {
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
	held, err := l.Acquire(t.Context(), "held", locker.WithTTL(time.Second))
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
		time.Sleep(100 * time.Millisecond) // five kills within one and a half TTLs
	}
	ok(t, held.Err())
	kill()
	ok(t, k.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
	ok(t, held.Release(t.Context()))
}

func TestStatementTimeout(t *testing.T) {
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

func TestBreakTellsTheHolder(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	prefix := unique()
	d, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	other, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	lo := newLocker(t, other)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	w := async(t, l, "a")
	queued(t, lo, "a", 2) // by now the driver listens, or will before it hears
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	ok(t, lo.Break(t.Context(), "a", k.Token()))
	<-k.Done()
	if took := time.Since(began); took > time.Second {
		t.Errorf("the loss was told after %v", took)
	}
	is(t, k.Err(), locker.ErrLost)
	ok(t, got(t, w).Release(t.Context()))
	is(t, lo.Break(t.Context(), "a", k.Token()), driver.ErrLost)
}

// Statements of an acquisition and a release, as the server counts them.
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
	time.Sleep(500 * time.Millisecond) // the listener has said hello to itself
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
		time.Sleep(3 * time.Second)
		t.Logf("%d waiters: %.1f statements a second", waiters, float64(n.Load())/3)
		if n.Load() > 10 {
			t.Errorf("%d waiters took %d statements in 3 s, want at most 10", waiters, n.Load())
		}
		cancel()
		group.Wait()
		ok(t, k.Release(t.Context()))
	}
}

type counter struct{ n *atomic.Int64 }

func (c counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestSweep(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	for i := range 50 {
		_, err := d.Acquire(t.Context(), driver.Request{Name: fmt.Sprint(i), ID: fmt.Sprint("id-", i), TTL: 20 * time.Millisecond})
		ok(t, err)
	}
	count := func() (n int) {
		ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_tickets").Scan(&n))
		return n
	}
	if n := count(); n != 50 {
		t.Fatalf("%d rows of dead holders, want 50", n)
	}
	waitFor(t, "the sweep leaves nothing", func() bool {
		d.Sweep(t.Context())
		return count() == 0
	})
}

func TestTokensGrowAfterLoss(t *testing.T) {
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

// A lease that is over is not renewed, though nobody has taken its row away;
// nor is a ticket that waits.
func TestRenewOfWhatIsNotHeld(t *testing.T) {
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
	standing := make(chan struct{})
	w.Joined = func() { close(standing) }
	done := make(chan error, 1)
	go func() { _, err := d.Acquire(ctx, w); done <- err }()
	<-standing
	line, err := l.Inspect(t.Context(), "b")
	ok(t, err)
	is(t, d.Renew(t.Context(), w.Hold(line.Tickets[1].Token), time.Minute), driver.ErrLost)
	cancel()
	is(t, <-done, context.Canceled)
	ok(t, d.Release(t.Context(), w.Hold(0)))
	ok(t, k.Release(t.Context()))
}

// Who waited trusts its lease no longer than the store keeps it, though the
// store keeps it for less than a TTL until it is renewed.
func TestHandedOverAndCutOff(t *testing.T) {
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
		standing := make(chan struct{})
		r.Joined = func() { close(standing) }
		go func() {
			g, err := d.Acquire(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			c <- g
		}()
		<-standing
		return c
	}
	two := acquire(d, "two")
	three := acquire(third, "three")
	ok(t, holder.Release(t.Context(), one.Hold(g.Token)))
	mine := <-two
	proxy.Cut()
	until := mine.Asked.Add(30 * time.Second)
	if left := time.Until(until); left < postgres.DefaultLiveness/2 {
		t.Errorf("the lease has only %v left when it is told", left)
	}
	<-three
	if early := time.Until(until); early > 0 {
		t.Errorf("the next was granted %v before the holder knew of its loss", early)
	}
	if late := -time.Until(until); late > 2500*time.Millisecond {
		t.Errorf("the next was granted %v after the lease of one that was cut off", late)
	}
}

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// everyMethod is one request of each kind that is bounded by a context.
func everyMethod(d *postgres.Driver, h driver.Hold) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Name: "other", ID: unique(), TTL: time.Minute, Wait: true})
			return err
		},
		"try": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Name: "other", ID: unique(), TTL: time.Minute})
			return err
		},
		"renew":   func(ctx context.Context) error { return d.Renew(ctx, h, time.Minute) },
		"release": func(ctx context.Context) error { return d.Release(ctx, h) },
		"inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, h.Name); return err },
		"list":    func(ctx context.Context) error { _, err := d.List(ctx); return err },
		"break":   func(ctx context.Context) error { return d.Break(ctx, h.Name, h.Token) },
		"ping":    func(ctx context.Context) error { return ping(ctx, d) },
	}
}

// busy opens n connections of a pool, and leaves them idle.
func busy(t *testing.T, p *pgxpool.Pool, n int) {
	t.Helper()
	var cs []*pgxpool.Conn
	defer func() {
		for _, c := range cs {
			c.Release()
		}
	}()
	waitFor(t, "the server takes the connections again", func() bool { // the testbed's own may not have ended yet
		c, err := p.Acquire(t.Context())
		if postgres.Code(err) == "53300" {
			return false
		}
		ok(t, err)
		cs = append(cs, c)
		return len(cs) == n
	})
}

// endsInTime calls a method with a limit, and returns what is wrong with its end.
func endsInTime(ctx context.Context, f func(context.Context) error, limit time.Duration, says string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var err error
	took, late := testbed.Measure(func() { err = f(ctx) })
	knows := late < limit/2 // the reason
	switch {
	case took > limit+50*time.Millisecond:
		return fmt.Errorf("it took %v", took)
	case err == nil || knows && !strings.Contains(err.Error(), says) || errors.Is(err, driver.ErrLost):
		return fmt.Errorf("the error is %w", err)
	}
	return nil
}

// Every method returns when its context ends, however long the database has been silent, with the reason if
// it is known.
func TestContextEndsInAnOutage(t *testing.T) {
	for what, c := range map[string]struct {
		begin func(*testbed.Proxy)
		says  string
	}{
		"silent":  {(*testbed.Proxy).Cut, ""},
		"refuses": {(*testbed.Proxy).Refuse, "connection refused"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			srv := testbed.SharedPostgres(t)
			proxy := srv.Proxy(t)
			d, p := newDriver(t, proxy.URL(), postgres.WithPrefix(unique()))
			r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
			g, err := d.Acquire(t.Context(), r)
			ok(t, err)
			waiting := make(chan error, 1)
			wait, stop := context.WithCancel(t.Context())
			defer stop()
			joined := make(chan struct{})
			go func() {
				_, err := d.Acquire(wait, driver.Request{Name: "a", ID: "2", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }})
				waiting <- err
			}()
			<-joined
			busy(t, p, 4)
			time.Sleep(1200 * time.Millisecond) // the pool pings what was idle for a second
			c.begin(proxy)
			defer proxy.Heal()
			for _, limit := range []time.Duration{60 * time.Millisecond, 700 * time.Millisecond} {
				var group sync.WaitGroup
				for method, f := range everyMethod(d, r.Hold(g.Token)) {
					group.Go(func() {
						if wrong := endsInTime(t.Context(), f, limit, c.says); wrong != nil {
							t.Errorf("%s: with a limit of %v: %v", method, limit, wrong)
						}
					})
				}
				group.Wait()
			}
			time.Sleep(1500 * time.Millisecond) // a heartbeat fails
			if took := testbed.Elapsed(func() { stop(); err = <-waiting }); took > 50*time.Millisecond {
				t.Errorf("a waiter returned %v after its context ended", took)
			}
			is(t, err, context.Canceled)
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("the waiter's error is %v", err)
			}
		})
	}
}

// Close does not wait for a database that does not answer.
func TestCloseInAnOutage(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	for what, begin := range map[string]func(*testbed.Proxy){"silent": (*testbed.Proxy).Cut, "refuses": (*testbed.Proxy).Refuse} {
		if took := closeInAnOutage(t, srv, begin); took > 150*time.Millisecond {
			t.Errorf("%s: Close took %v", what, took)
		}
	}
}

// closeInAnOutage returns how long Close takes after an outage has begun, for a driver that has waited and
// released.
func closeInAnOutage(t *testing.T, srv *testbed.Server, begin func(*testbed.Proxy)) time.Duration {
	t.Helper()
	proxy := srv.Proxy(t)
	opened, err := open(t.Context(), proxy.URL()+"&prefix="+unique())
	ok(t, err)
	d := opened.(*postgres.Driver)
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done, joined := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = d.Acquire(ctx, driver.Request{Name: "a", ID: "2", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }})
	}()
	<-joined
	waitFor(t, "it listens", d.Hears)
	cancel()
	<-done
	ok(t, d.Release(t.Context(), r.Hold(g.Token)))
	begin(proxy)
	took := testbed.Elapsed(func() { err = d.Close() })
	ok(t, err)
	proxy.Heal()
	proxy.Reset() // ends what Close did not wait for
	return took
}

// A release that was not answered in an outage is done within two seconds of its end, if it is repeated as the
// core does, although other requests use the same pool.
func TestReleaseAfterAnOutage(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	for _, o := range []struct {
		name       string
		begin, end func(*testbed.Proxy) // end nil: open connections stay silent, and new ones take another way
	}{
		{"silent, and delivered late", (*testbed.Proxy).Cut, (*testbed.Proxy).Heal},
		{"silent, and reset", (*testbed.Proxy).Cut, func(p *testbed.Proxy) { p.Reset(); p.Heal() }},
		{"refused", (*testbed.Proxy).Refuse, (*testbed.Proxy).Heal},
		{"silent, and what was open stays so", (*testbed.Proxy).Cut, nil},
		{"answers lost", func(p *testbed.Proxy) { p.DropReplies(true) }, (*testbed.Proxy).Heal},
	} {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			prefix, proxy := unique(), srv.Proxy(t)
			var way atomic.Value
			way.Store(proxy.Addr())
			p := newPool(t, proxy.URL(), func(c *pgxpool.Config) {
				c.ConnConfig.DialFunc = func(ctx context.Context, network, _ string) (net.Conn, error) {
					return (&net.Dialer{}).DialContext(ctx, network, way.Load().(string))
				}
			})
			d, err := postgres.New(p, postgres.WithPrefix(prefix))
			ok(t, err)
			t.Cleanup(func() { ok(t, d.Close()) })
			admin, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
			held := make(map[string]driver.Hold)
			for _, name := range []string{"one", "two"} {
				r := driver.Request{Name: name, ID: name, TTL: time.Minute, Renewed: true}
				g, err := d.Acquire(t.Context(), r)
				ok(t, err)
				held[name] = r.Hold(g.Token)
			}
			busy(t, p, 4)
			o.begin(proxy)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var group sync.WaitGroup
			group.Go(func() { // the other lock goes on
				for every(ctx, 200*time.Millisecond) {
					try, cancel := context.WithTimeout(ctx, time.Second)
					_ = d.Renew(try, held["two"], time.Minute)
					cancel()
				}
			})
			released := make(chan struct{})
			group.Go(func() {
				defer close(released)
				for {
					try, cancel := context.WithTimeout(ctx, time.Second)
					err := d.Release(try, held["one"])
					cancel()
					if err == nil || errors.Is(err, driver.ErrLost) || !every(ctx, 250*time.Millisecond) {
						return
					}
				}
			})
			time.Sleep(7 * time.Second)
			back := time.Now()
			if o.end == nil {
				way.Store(srv.Addr())
			} else {
				o.end(proxy)
			}
			free := testbed.Elapsed(func() {
				waitFor(t, "the ticket is gone", func() bool {
					names, err := admin.List(t.Context())
					ok(t, err)
					return !slices.Contains(names, "one")
				})
			})
			<-released
			t.Logf("free %v after the way was back, confirmed after %v", free.Round(time.Millisecond), time.Since(back).Round(time.Millisecond))
			if free > 2*time.Second {
				t.Errorf("the ticket was gone %v after the way was back", free)
			}
			stop()
			group.Wait()
			ok(t, d.Renew(t.Context(), held["two"], time.Minute))
		})
	}
}

// every waits for d; false when ctx ended.
func every(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Errors that everybody gets are distinguished from those of this caller.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	acquire := func(t *testing.T, url string) error {
		t.Helper()
		p := newPool(t, url, nil)
		d, err := postgres.New(p, postgres.WithPrefix(unique()))
		ok(t, err)
		defer func() { ok(t, d.Close()) }()
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err = d.Acquire(ctx, driver.Request{Name: "a", ID: "1", TTL: time.Minute})
		if err == nil {
			t.Fatal("acquired")
		}
		if !pgconn.Timeout(err) { // that was a request under way, whose answer might have been a ticket
			is(t, err, driver.ErrNoTicket)
		}
		return err
	}
	t.Run("too many connections", func(t *testing.T) {
		srv := testbed.Postgres(t, testbed.Args("-c", "max_connections=4", "-c", "superuser_reserved_connections=0", "-c", "max_wal_senders=0"))
		full := newPool(t, srv.URL(), func(c *pgxpool.Config) { c.MaxConns = 4 })
		busy(t, full, 4)
		err := acquire(t, srv.URL())
		is(t, err, driver.ErrUnavailable)
		if postgres.Code(err) != "53300" {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("a standby", func(t *testing.T) {
		e := testbed.PostgresStandby(t)
		for _, query := range []string{"", "&target_session_attrs=read-write", "&target_session_attrs=primary"} {
			is(t, acquire(t, e.Members[1].URL()+query), driver.ErrUnavailable)
		}
	})
	t.Run("and the last answer did not come", func(t *testing.T) {
		d, _ := newDriver(t, testbed.SharedPostgres(t).URL())
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		err := d.Repeat(ctx, func() error {
			if calls++; calls == 1 {
				return &pgconn.PgError{Code: "53300", Message: "too many clients"}
			}
			cancel()
			return ctx.Err()
		})
		is(t, err, context.Canceled)
		is(t, err, driver.ErrUnavailable)
	})
	t.Run("a pooler that has lost the server", func(t *testing.T) {
		d, _ := newDriver(t, testbed.SharedPostgres(t).URL())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		calls := 0
		err := d.Repeat(ctx, func() error { // which may have executed the request: it is sent again a few times
			calls++
			return &pgconn.PgError{Severity: "ERROR", Code: "08006", Message: "remote server read/write error"}
		})
		is(t, err, driver.ErrUnavailable)
		if calls != 4 {
			t.Errorf("it was sent %d times, want 4", calls)
		}
	})
	t.Run("this caller", func(t *testing.T) {
		srv := testbed.SharedPostgres(t)
		for what, url := range map[string]string{
			"no such user":     strings.Replace(srv.URL(), "postgres@", "nobody:s3cret@", 1),
			"no such database": strings.Replace(srv.URL(), "/postgres?", "/nothing?", 1),
		} {
			err := acquire(t, url)
			if errors.Is(err, driver.ErrUnavailable) || strings.Contains(fmt.Sprintf("%+v", err), "s3cret") {
				t.Errorf("%s: the error is %v", what, err)
			}
		}
	})
}

package redis_test

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// verbs are all requests of a driver, by name.
func verbs(d *redis.Driver, name string) map[string]func(context.Context) error {
	h := driver.Hold{Name: name, ID: newName()}
	return map[string]func(context.Context) error{
		"try": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Name: name, ID: newName(), TTL: time.Second})
			return err
		},
		"acquire": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Name: name, ID: newName(), TTL: time.Second, Wait: true})
			return err
		},
		"renew": func(ctx context.Context) error { return d.Renew(ctx, h, time.Second) },
		"renewall": func(ctx context.Context) error {
			return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: time.Second}})[0]
		},
		"release": func(ctx context.Context) error { return d.Release(ctx, h) },
		"inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, name); return err },
		"break":   func(ctx context.Context) error { return d.Break(ctx, name, 1) },
		"list":    func(ctx context.Context) error { _, err := d.List(ctx); return err },
		"shorten": func(ctx context.Context) error { return d.Shorten(ctx, h, time.Second) },
		"version": func(ctx context.Context) error { _, err := d.ServerVersion(ctx); return err },
		"ping":    func(ctx context.Context) error { return d.Ping(ctx) },
	}
}

// bounded runs f with a bound, and fails unless it returns within 50 ms of it.
func bounded(t *testing.T, what string, bound time.Duration, f func(context.Context) error) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	var err error
	if took := testbed.Elapsed(func() { err = f(ctx) }); took > bound+50*time.Millisecond {
		t.Errorf("%s: returned after %v, with a context of %v: %v", what, took, bound, err)
	}
	return err
}

// atOnce runs f, and fails unless it returns soon by itself.
func atOnce(t *testing.T, what string, f func(context.Context) error) error {
	t.Helper()
	const bound = 450 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), 20*bound)
	defer cancel()
	var err error
	if took := testbed.Elapsed(func() { err = f(ctx) }); took > bound {
		t.Errorf("%s: returned after %v, want %v: %v", what, took, bound, err)
	}
	return err
}

// TestRefusesEverybody: an error by which a server refuses everybody is
// ErrUnavailable, and leaves no ticket.
func TestRefusesEverybody(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	set := func(key, value string) func() error {
		return func() error { return c.ConfigSet(t.Context(), key, value).Err() }
	}
	endless := func() error {
		if err := set("busy-reply-threshold", "1")(); err != nil {
			return err
		}
		go dial(t, srv.Addr()).Eval(context.Background(), "while true do end", nil)
		until(t, func() error {
			if err := c.Ping(t.Context()).Err(); err == nil {
				return errors.New("not busy")
			}
			return nil
		})
		return nil
	}
	replica := func() error { return c.SlaveOf(t.Context(), "127.0.0.1", "1").Err() }
	primary := func() error { return c.SlaveOf(t.Context(), "no", "one").Err() }
	stale := func() error { return errors.Join(set("replica-serve-stale-data", "no")(), replica()) }
	kill := func() error { return c.ScriptKill(t.Context()).Err() }
	for _, state := range []struct {
		want    string
		on, off func() error
		spares  string // the verbs that still work
	}{
		{"READONLY", replica, primary, "inspect"},
		{"MASTERDOWN", stale, primary, ""},
		{"NOREPLICAS", set("min-replicas-to-write", "1"), set("min-replicas-to-write", "0"), "inspect"},
		{"OOM", set("maxmemory", "1"), set("maxmemory", "0"), "inspect release renew renewall shorten break"},
		{"BUSY", endless, kill, ""},
	} {
		t.Run(state.want, func(t *testing.T) {
			d := openAt(t, srv.URL())
			if err := d.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := state.on(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = state.off() }()
			for verb, f := range verbs(d, newName()) {
				if verb == "list" || verb == "version" || strings.Contains(state.spares, verb) {
					continue
				}
				err := bounded(t, verb, 5*time.Second, f)
				if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), state.want) {
					t.Errorf("%s: %v", verb, err)
				}
			}
		})
	}
}

// TestRefusesOnce: an error by which the server has refused the only sending of
// a request leaves no ticket.
func TestRefusesOnce(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	admin := dial(t, srv.Addr())
	once := goredis.NewClient(&goredis.Options{Addr: srv.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = once.Close() })
	d, err := redis.New(once)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	admin.ConfigSet(t.Context(), "min-replicas-to-write", "1")
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("refused: %v", err)
	}
	admin.ConfigSet(t.Context(), "min-replicas-to-write", "0")
	if q, err := d.Inspect(t.Context(), r.Name); err != nil || len(q) != 0 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
}

// TestNothingSent: no ticket is left if no connection could be made; one may be
// left if the answer is missing.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	p := srv.Proxy(t)
	d := openAt(t, p.URL())
	first := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), first); err != nil { // and the server has the protocol version
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), first.Hold(0)); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // in which a busy process sends it, too
	defer cancel()
	if _, err := d.Acquire(ctx, r); err == nil || errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("without an answer: %v", err)
	}
	p.Heal()
	p.Refuse()
	for _, wait := range []bool{false, true} {
		q := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute, Wait: wait}
		if _, err := d.Acquire(t.Context(), q); !errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("nothing sent: %v", err)
		}
	}
	// The first request for this ticket may have been done.
	if _, err := d.Acquire(t.Context(), r); err == nil || errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("asked again after no answer: %v", err)
	}
	p.Heal()
	until(t, func() error {
		if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
			return err
		}
		return nil
	})
}

// TestDenied: an error that refuses this caller comes at once, is no outage, and
// leaves no ticket.
func TestDenied(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	admin := dial(t, srv.Addr())
	user := func(name string, rules ...any) {
		t.Helper()
		args := append([]any{"ACL", "SETUSER", name, "reset", "on", ">secret"}, rules...)
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	user("nokeys", "~other:*", "&*", "+@all")
	user("nochannels", "~*", "&other:*", "+@all")
	user("noscripts", "~*", "&*", "+@all", "-eval", "-evalsha")
	user("reader", "~*", "&*", "+@all", "-@write")
	for _, c := range strings.Fields("set del hset zadd zrem pexpire publish") {
		user("no"+c, "~*", "&*", "+@all", "-"+c)
	}
	for _, who := range strings.Fields("nokeys nochannels noscripts reader wrong " +
		"noset nodel nohset nozadd nozrem nopexpire nopublish") {
		d := openAt(t, "redis://"+who+":secret@"+srv.Addr())
		err := atOnce(t, who+": ping", d.Ping)
		if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: ping: %v", who, err)
		}
		switch who {
		case "nokeys", "noscripts", "reader", "wrong", "noset":
			for _, wait := range []bool{false, true} {
				r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute, Wait: wait}
				err := atOnce(t, who, func(ctx context.Context) error { _, err := d.Acquire(ctx, r); return err })
				if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: acquire: %v", who, err)
				}
				if !errors.Is(err, driver.ErrNoTicket) && who != "reader" && who != "noset" { // these are refused in the middle of the script
					t.Errorf("%s: acquire: %v may have left a ticket", who, err)
				}
			}
		}
	}
	d := openAt(t, srv.URL())
	if err := d.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if keys := admin.Keys(t.Context(), "*").Val(); len(keys) != 0 {
		t.Errorf("ping leaves %q", keys)
	}
}

// drivers are one opened by URL and one over a client of the user.
func drivers(t *testing.T, p *testbed.Proxy) map[string]*redis.Driver {
	t.Helper()
	c := dial(t, p.Addr())
	d, err := redis.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return map[string]*redis.Driver{"url": openAt(t, p.URL()), "client": d}
}

// TestConnectionRefused: a method whose context ends while the server refuses
// connections says so.
func TestConnectionRefused(t *testing.T) {
	p := testbed.SharedRedis(t).Proxy(t)
	p.Refuse()
	for what, d := range drivers(t, p) {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for verb, f := range verbs(d, newName()) {
				const bound = 100 * time.Millisecond
				var err error
				_, late := testbed.Measure(func() { err = bounded(t, verb, bound, f) })
				if err == nil || late < bound/2 && !strings.Contains(err.Error(), "connection refused") {
					t.Errorf("%s: %v", verb, err)
				}
			}
		})
	}
}

// TestContextEnds: every method returns within 50 ms after its context's end,
// whatever the server does, and Close within 100 ms.
func TestContextEnds(t *testing.T) {
	for fault, set := range map[string]func(*testbed.Proxy){
		"cut":   (*testbed.Proxy).Cut,
		"reset": func(p *testbed.Proxy) { p.Cut(); p.Reset() },
		"lost":  func(p *testbed.Proxy) { p.DropReplies(true) },
	} {
		for _, what := range []string{"url", "client"} {
			t.Run(fault+"/"+what, func(t *testing.T) {
				t.Parallel()
				p := testbed.SharedRedis(t).Proxy(t)
				d := drivers(t, p)[what]
				name := newName()
				for range 20 { // the server is known to be quick
					r := driver.Request{Name: name, ID: newName(), TTL: time.Minute}
					if _, err := d.Acquire(t.Context(), r); err != nil {
						t.Fatal(err)
					}
					if err := d.Release(t.Context(), r.Hold(0)); err != nil {
						t.Fatal(err)
					}
				}
				set(p)
				for verb, f := range verbs(d, name) {
					if err := bounded(t, verb, 100*time.Millisecond, f); err == nil {
						t.Errorf("%s: no error", verb)
					}
				}
				var err error
				took := testbed.Elapsed(func() { err = d.Close() })
				if err != nil {
					t.Error(err)
				}
				if took > 150*time.Millisecond {
					t.Errorf("Close took %v", took)
				}
				p.Heal()
			})
		}
	}
}

// TestLoading: a server that is reading its data says so to everybody.
func TestLoading(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults(), testbed.Durable(),
		testbed.Args("--key-load-delay", "150", "--aof-use-rdb-preamble", "no"))
	fill := dial(t, srv.Addr()).Pipeline()
	for i := range 10 * 1024 { // seconds of loading; the server answers after each 1024
		fill.Set(t.Context(), "filler", i, 0)
	}
	if _, err := fill.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := openAt(t, srv.URL())
	if err := d.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.Kill()
	started := make(chan struct{})
	go func() { defer close(started); srv.Start() }()
	seen := 0
	for done := false; !done; {
		select {
		case <-started:
			done = true
		default:
		}
		err := d.Ping(t.Context())
		if err != nil && strings.Contains(err.Error(), "LOADING") {
			if seen++; !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("loading: %v", err)
			}
		}
	}
	t.Logf("%d errors said that the server is loading", seen)
	if seen == 0 {
		t.Error("the server was never seen to load")
	}
}

// TestTooManyClients: a server that takes no more connections refuses
// everybody.
func TestTooManyClients(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	admin := goredis.NewClient(&goredis.Options{Addr: srv.Addr(), PoolSize: 1, MinIdleConns: 1})
	t.Cleanup(func() { _ = admin.Close() })
	if err := admin.ConfigSet(t.Context(), "maxclients", "1").Err(); err != nil {
		t.Fatal(err)
	}
	// The connection may be reset before the answer is read: the core recognizes
	// that error.
	if _, err := process(t, srv.URL()).TryAcquire(t.Context(), newName()); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("one connection too many: %v", err)
	}
}

// TestContextEndsOnShortcut: a request that a caller sends itself, without watching
// its context, does not delay the caller either.
func TestContextEndsOnShortcut(t *testing.T) {
	p := testbed.SharedRedis(t).Proxy(t)
	d := openAt(t, p.URL())
	name := newName()
	for range 20 { // the server is known to be quick
		if err := d.Release(t.Context(), driver.Hold{Name: name, ID: newName()}); !errors.Is(err, driver.ErrLost) {
			t.Fatal(err)
		}
	}
	p.Cut()
	_ = bounded(t, "release", 10*time.Millisecond, func(ctx context.Context) error {
		return d.Release(ctx, driver.Hold{Name: name, ID: newName()})
	})
	p.Heal()
}

// TestClusterIsSilentFromTheStart: every request returns with its context, though the
// Cluster's map could not be read yet.
func TestClusterIsSilentFromTheStart(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	for _, verb := range slices.Sorted(maps.Keys(verbs(nil, newName()))) {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			d := openAt(t, "redis+cluster://"+silent.Addr().String())
			begun := time.Now()
			err := bounded(t, verb, 200*time.Millisecond, verbs(d, newName())[verb])
			if took := time.Since(begun); !errors.Is(err, context.DeadlineExceeded) || took > 1500*time.Millisecond {
				t.Errorf("%v after %v", err, took)
			}
		})
	}
}

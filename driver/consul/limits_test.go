package consul_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

func newBody(text string) io.ReadCloser { return io.NopCloser(strings.NewReader(text)) }

// Every method returns when its context ends, whatever the store does, and says
// why it could not connect.
func TestContextEnds(t *testing.T) {
	srv := testbed.SharedConsul(t)
	for what, fault := range map[string]func(p *testbed.Proxy){"hangs": (*testbed.Proxy).Cut, "refuses": (*testbed.Proxy).Refuse} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // to each other only
			p := srv.Proxy(t)
			d := driverOver(t, p.Addr(), newTransport(t))
			other := first(counted(t, srv.Addr()))
			h, foreign := get(t, d, request(t.Name()+"/held")), get(t, other, request(t.Name()+"/foreign"))
			r := request(t.Name() + "/long")
			r.TTL = time.Hour
			long := get(t, d, r)
			joined := make(chan struct{}, 1)
			w := request(t.Name() + "/foreign")
			w.Wait, w.Joined = true, func() { joined <- struct{}{} }
			try := request(t.Name() + "/try")
			fixed := request(t.Name() + "/fixed")
			fixed.Wait, fixed.Renewed = true, false
			methods := map[string]func(ctx context.Context) error{
				"Acquire":  func(ctx context.Context) error { _, err := d.Acquire(ctx, fixed); return err },
				"try":      func(ctx context.Context) error { _, err := d.Acquire(ctx, try); return err },
				"Renew":    func(ctx context.Context) error { return d.Renew(ctx, h, 15*time.Second) },
				"Shorten":  func(ctx context.Context) error { return d.Shorten(ctx, long, 15*time.Second) },
				"Inspect":  func(ctx context.Context) error { _, err := d.Inspect(ctx, h.Name); return err },
				"List":     func(ctx context.Context) error { _, err := d.List(ctx); return err },
				"Break":    func(ctx context.Context) error { return d.Break(ctx, h.Name, h.Token) },
				"Ping":     d.Ping,
				"Release":  func(ctx context.Context) error { return d.Release(ctx, h) },
				"Release?": func(ctx context.Context) error { return d.Release(ctx, request(h.Name).Hold(0)) },
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			waited := make(chan error, 1)
			go func() { _, err := d.Acquire(ctx, w); waited <- err }()
			<-joined
			fault(p)
			time.Sleep(300 * time.Millisecond)
			check := func(method string, over time.Duration, knows bool, err error) {
				t.Helper()
				if over > 50*time.Millisecond {
					t.Errorf("%s came back %v after the end of its context", method, over)
				}
				if err == nil || what == "refuses" && knows && !strings.Contains(err.Error(), "connection refused") {
					t.Errorf("%s: %v, want the reason", method, err)
				}
				if errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("%s: %v, which the store did not say", method, err)
				}
			}
			for method, call := range methods {
				const limit = 150 * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				var err error
				took, late := testbed.Measure(func() { err = call(ctx) })
				cancel()
				check(method, took-limit, late < limit/2, err)
			}
			cause := errors.New("enough")
			var err error
			took := testbed.Elapsed(func() {
				cancel(cause)
				err = <-waited
			})
			check("a waiting Acquire", took, true, err)
			if !errors.Is(err, cause) {
				t.Errorf("a waiting Acquire: %v, want the cause of its end", err)
			}
			p.Heal()
			drop(t, other, foreign)
		})
	}
}

// Close waits no longer than 100 ms for a store that hangs.
func TestCloseHanging(t *testing.T) {
	srv := testbed.SharedConsul(t)
	p := srv.Proxy(t)
	d := driverOver(t, p.Addr(), newTransport(t))
	name := request(t.Name()).ID // of this run alone, since what is left stays for a while
	drop(t, d, get(t, d, request(name)))
	a, b := request(name), request(name)
	a.Wait, b.Wait = true, true
	h := get(t, d, a)
	waited := make(chan error, 1)
	joined := make(chan struct{})
	b.Joined = func() { close(joined) }
	go func() { _, err := d.Acquire(t.Context(), b); waited <- err }()
	<-joined
	drop(t, d, h)
	p.Cut()
	defer p.Heal()
	var err error
	took := testbed.Elapsed(func() { err = d.Close() })
	if took > 200*time.Millisecond {
		t.Errorf("Close took %v", took)
	}
	if err == nil || !strings.Contains(err.Error(), "1 tickets") {
		t.Errorf("Close with a ticket left: %v", err)
	}
	if err := <-waited; err != nil && !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a waiting Acquire: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// An error after which there is no ticket is marked. So is an error that means that
// Consul serves nobody. A refusal of this caller alone is returned at once.
func TestMarks(t *testing.T) {
	srv := testbed.SharedConsul(t)
	refuse := func(status int, text string, path string) func(*http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			if strings.HasPrefix(r.URL.Path, path) {
				return reply(r, status, text)
			}
			return nil, nil
		}
	}
	for _, c := range []struct {
		what        string
		status      int
		text, path  string
		unavailable bool
		none        bool // no ticket can be left
	}{
		{"no leader at creation of the session", 500, "No cluster leader", "/v1/session", true, true},
		{"no leader", 500, "rpc error making call: No cluster leader", "/v1/txn", true, false},
		{"no server", 500, "No known Consul servers", "/v1/txn", true, false},
		{"rate limit", 429, "rate limit exceeded", "/v1/txn", true, true},
		{"shutting down", 500, "raft is already shutdown", "/v1/txn", true, false},
		{"no right", 403, "rpc error making call: Permission denied", "/v1/txn", false, true},
		{"no right to sessions", 403, "Permission denied: token with AccessorID lacks permission 'session:write'", "/v1/session", false, true},
		{"session too short", 500, "rpc error making call: Invalid Session TTL '10', must be between [1h0m0s=24h0m0s]", "/v1/session", false, true},
	} {
		for _, wait := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, wait %v", c.what, wait), func(t *testing.T) {
				t.Parallel() // to each other only
				d, w := tamper(t, srv.Addr())
				w.with(refuse(c.status, c.text, c.path))
				r := request(t.Name())
				r.Wait = wait
				// Until then, what Consul refuses everybody is asked for again.
				limit := map[bool]time.Duration{true: time.Second, false: 5 * time.Second}[c.unavailable]
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				var err error
				took := testbed.Elapsed(func() { _, err = d.Acquire(ctx, r) })
				cancel()
				none := c.none || !wait && c.path == "/v1/txn" // a try reads first
				if err == nil || !strings.Contains(err.Error(), c.text) ||
					errors.Is(err, driver.ErrUnavailable) != c.unavailable || errors.Is(err, driver.ErrNoTicket) != none {
					t.Errorf("%v; unavailable %v, no ticket %v, want %v and %v", err,
						errors.Is(err, driver.ErrUnavailable), errors.Is(err, driver.ErrNoTicket), c.unavailable, none)
				}
				if !c.unavailable && took > 300*time.Millisecond {
					t.Errorf("notified after %v", took)
				}
				w.with(func(*http.Request) (*http.Response, error) { return nil, nil })
			})
		}
	}
	d := driverOver(t, "127.0.0.1:1", newTransport(t))
	r := request(t.Name())
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("nothing was sent: %v, want no ticket", err)
	}
	r.TTL = 25 * time.Hour
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNoTicket) || !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("25 h: %v, want ErrUnsupported and no ticket", err)
	}
}

// A ticket with a MinHold outlives Close; others do not.
func TestMinHold(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t, testbed.Args("-hcl", `session_ttl_min="1s"`))
	admin := newClient(t, srv.Addr())
	other := first(counted(t, srv.Addr(), consul.WithMinTTL(time.Second)))
	for _, wait := range []bool{true, false} {
		t.Run(fmt.Sprintf("wait %v", wait), func(t *testing.T) {
			t.Parallel()
			d := driverOver(t, srv.Addr(), newTransport(t), consul.WithMinTTL(time.Second))
			r, plain := request(t.Name()+"/kept"), request(t.Name()+"/plain")
			r.TTL, plain.TTL, r.MinHold, r.Wait = 2*time.Second, 2*time.Second, 2*time.Second, wait
			get(t, d, plain)
			time.Sleep(300 * time.Millisecond) // the session is not new
			get(t, d, r)
			granted := time.Now()
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if kvs := keysOf(t, admin, plain.Name); len(kvs) > 0 {
				t.Errorf("after Close %q is held", plain.Name)
			}
			next := request(r.Name)
			next.Wait, next.TTL = true, time.Second
			h := get(t, other, next)
			took := time.Since(granted)
			t.Logf("the next was granted after %v", took)
			if took < r.MinHold || took > consulBounds(r.TTL)+r.TTL {
				t.Errorf("the next was granted after %v, want %v at least, and %v at most", took, r.MinHold, consulBounds(r.TTL))
			}
			drop(t, other, h)
		})
	}
	long := request(t.Name())
	long.MinHold = 25 * time.Hour
	if _, err := other.Acquire(t.Context(), long); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a MinHold of 25 h: %v, want ErrUnsupported", err)
	}
	if b := other.Bounds(time.Second); b.MaxTTL != 24*time.Hour {
		t.Errorf("MaxTTL is %v", b.MaxTTL)
	}
}

func consulBounds(ttl time.Duration) time.Duration { return 2*ttl + time.Second }

func TestPing(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t, testbed.ACL(management), testbed.Faults())
	for rules, want := range map[string]string{
		`key_prefix "locker/" { policy = "write" } session_prefix "" { policy = "write" }`: "",
		`key_prefix "locker/" { policy = "write" }`:                                        "session:write",
		`key_prefix "locker/" { policy = "read" } session_prefix "" { policy = "write" }`:  "Permission denied",
	} {
		d, err := open(t.Context(), "consul://:"+newToken(t, srv.Addr(), rules)+"@"+srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		err = d.(driver.Pinger).Ping(t.Context())
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || errors.Is(err, driver.ErrUnavailable)) {
			t.Errorf("with %s: %v, want %q", rules, err, want)
		}
	}
	d := driverOver(t, "127.0.0.1:1", newTransport(t))
	if err := d.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody there: %v", err)
	}
}

// A key that another program has locked below the prefix can be broken. The holder or
// waiter of a broken ticket is notified that it was removed.
func TestBreakWhatever(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	admin := newClient(t, srv.Addr())
	d, other := first(counted(t, srv.Addr())), first(counted(t, srv.Addr()))
	h := get(t, d, request(t.Name()))
	key := keysOf(t, admin, t.Name())[0].Key
	drop(t, d, h)
	foreign := lockForeign(t, admin, key[:strings.LastIndex(key, "/")+1]+".lock")
	if _, err := d.Acquire(t.Context(), request(t.Name())); err == nil || !strings.Contains(err.Error(), "another program's") {
		t.Errorf("a try beside a foreign lock: %v", err)
	}
	if err := other.Break(t.Context(), t.Name(), foreign); err != nil {
		t.Errorf("break: %v", err)
	}
	if err := other.Break(t.Context(), t.Name(), foreign); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a second break: %v, want ErrLost", err)
	}
	notified := make(chan error, 1)
	d2, _ := counted(t, srv.Addr())
	d2.NotifyLoss(func(_ driver.Hold, cause error) { notified <- cause })
	h = get(t, d2, request(t.Name()))
	awaitLossWatch(t, admin, sessionOf(t, admin, t.Name()))
	if err := other.Break(t.Context(), h.Name, h.Token); err != nil {
		t.Fatal(err)
	}
	select {
	case cause := <-notified:
		if !errors.Is(cause, driver.ErrLost) || !strings.Contains(cause.Error(), "the ticket was removed from the queue") {
			t.Errorf("the cause is %v", cause)
		}
	case <-time.After(2 * time.Second):
		t.Error("the break was not reported")
	}
}

// Blocking queries end before a proxy that closes idle connections after a minute
// would end them, or after WithQueryWait; the wait goes on.
func TestQueryWait(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	holder := first(counted(t, addr))
	for wait, opts := range map[string][]consul.Option{
		"45000ms": nil, "1000ms": {consul.WithQueryWait(time.Second)},
	} {
		t.Run(wait, func(t *testing.T) {
			t.Parallel()
			name := t.Name()
			h := get(t, holder, request(name))
			w := &tampered{RoundTripper: newTransport(t)}
			d := driverOver(t, addr, w, opts...)
			waits := make(chan string, 100)
			w.with(func(r *http.Request) (*http.Response, error) {
				if r.URL.Query().Has("index") {
					waits <- r.URL.Query().Get("wait")
				}
				return nil, nil
			})
			granted := waiting(t, d, name)
			queries := 1
			if opts != nil {
				queries = 4 // of the ticket ahead and for losses
			}
			for range queries {
				if got := <-waits; got != wait {
					t.Errorf("a blocking query waits for %s, want %s", got, wait)
				}
			}
			drop(t, holder, h)
			drop(t, d, handedOver(t, granted))
		})
	}
}

// If the store has answered at first, its answer is in the error, even if the last
// request was not answered.
func TestLastAnswerIsTold(t *testing.T) {
	t.Parallel()
	d, w := tamper(t, testbed.SharedConsul(t).Addr())
	h := get(t, d, request(t.Name()+"/held"))
	for method, call := range map[string]func(ctx context.Context) error{
		"Acquire": func(ctx context.Context) error {
			r := request(t.Name())
			r.Wait = true
			_, err := d.Acquire(ctx, r)
			return err
		},
		"a grant's renewal": func(ctx context.Context) error {
			r := request(t.Name() + "/kept")
			r.Wait, r.MinHold = true, time.Second
			_, err := d.Acquire(ctx, r)
			return err
		},
	} {
		var asked atomic.Int64
		w.with(func(r *http.Request) (*http.Response, error) {
			renewal := strings.HasPrefix(r.URL.Path, "/v1/session/renew/")
			if strings.Contains(method, "renewal") != renewal {
				return nil, nil
			}
			if asked.Add(1) <= 2 {
				return reply(r, http.StatusInternalServerError, "No cluster leader")
			}
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := call(ctx)
		cancel()
		if n := asked.Load(); n < 3 {
			t.Errorf("%s: %d requests, none of them without an answer", method, n)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "No cluster leader") {
			t.Errorf("%s: %v, want the deadline and what the store said", method, err)
		}
	}
	w.with(func(*http.Request) (*http.Response, error) { return nil, nil })
	drop(t, d, h)
}

// The lease of a ticket with a MinHold is renewed after its grant, because a lease
// that began earlier might end before the minimum hold is over.
func TestMinHoldCountsFromGrant(t *testing.T) {
	t.Parallel()
	d, w := tamper(t, testbed.SharedConsul(t).Addr())
	drop(t, d, get(t, d, request(t.Name())))
	for _, wait := range []bool{true, false} {
		r := request(t.Name())
		r.Wait, r.MinHold = wait, 15*time.Second
		var created, renewed atomic.Bool
		w.with(func(r *http.Request) (*http.Response, error) {
			if creates(body(r)) {
				created.Store(true)
			} else if strings.HasPrefix(r.URL.Path, "/v1/session/renew/") {
				renewed.Store(created.Load())
			}
			return nil, nil
		})
		h := get(t, d, r)
		w.with(func(*http.Request) (*http.Response, error) { return nil, nil })
		if !renewed.Load() {
			t.Errorf("wait %v: no renewal after the grant", wait)
		}
		drop(t, d, h)
	}
}

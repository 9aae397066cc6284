package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// onProxy opens a driver on a proxy, beside a direct one.
func onProxy(t *testing.T, srv *testbed.Server) (d *mysql.Driver, direct *mysql.Driver, proxy *testbed.Proxy) {
	t.Helper()
	_, direct, prefix := fresh(t, connect(t, srv, ""))
	proxy = srv.Proxy(t)
	opened, err := openURL(t.Context(), proxy.URL(), prefix)
	must(t, err)
	t.Cleanup(func() { must(t, opened.Close()) })
	return opened.(*mysql.Driver), direct, proxy
}

func request(id string, wait bool) driver.Request {
	return driver.Request{Name: "a", ID: id, TTL: time.Minute, Wait: wait}
}

// removeTicket releases as the core does, in tries of a second, and returns when the store has confirmed.
func removeTicket(ctx context.Context, d *mysql.Driver, h driver.Hold) error {
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := d.Release(try, h)
		cancel()
		if err == nil || errors.Is(err, driver.ErrLost) || ctx.Err() != nil {
			return err
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// Soon after the database can be reached again, the tickets of a release, a cancelled wait and an unanswered
// acquisition are gone, whatever became of earlier requests.
func TestWayBackToFree(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		for way, down := range map[string]func(*testbed.Proxy){
			"cut":    (*testbed.Proxy).Cut,
			"lose":   func(p *testbed.Proxy) { p.DropReplies(true) },
			"refuse": (*testbed.Proxy).Refuse,
		} {
			for what, leave := range map[string]func(*testing.T, *mysql.Driver, *mysql.Driver, func()) driver.Hold{
				"release": leaveHolder, "waiter": leaveWaiter, "acquire": leaveAcquire,
			} {
				t.Run(way+"/"+what, func(t *testing.T) {
					t.Parallel()
					d, direct, proxy := onProxy(t, srv)
					h := leave(t, d, direct, func() { down(proxy) })
					removed := make(chan error, 1)
					go func() { removed <- removeTicket(context.WithoutCancel(t.Context()), d, h) }()
					time.Sleep(3 * time.Second)
					proxy.Heal()
					next := request("next", true)
					var g driver.Grant
					var err error
					took := testbed.Elapsed(func() { g, err = direct.Acquire(t.Context(), next) })
					must(t, err)
					t.Logf("free %v after the way was back", took.Round(time.Millisecond))
					if took > 2*time.Second {
						t.Errorf("free %v after the way was back", took)
					}
					must(t, ignoreLost(<-removed))
					must(t, direct.Release(t.Context(), next.Hold(g.Token)))
				})
			}
		}
	})
}

// leaveHolder leaves a ticket that is held, and the database cannot be reached.
func leaveHolder(t *testing.T, d, _ *mysql.Driver, down func()) driver.Hold {
	t.Helper()
	r := request("holder", false)
	g, err := d.Acquire(t.Context(), r)
	must(t, err)
	down()
	return r.Hold(g.Token)
}

// leaveWaiter leaves a ticket that waited for a lock, which is released meanwhile.
func leaveWaiter(t *testing.T, d, direct *mysql.Driver, down func()) driver.Hold {
	t.Helper()
	holder, r := request("holder", false), request("waiter", true)
	g, err := direct.Acquire(t.Context(), holder)
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	r.Joined = func() {
		down()
		cancel()
	}
	if _, err := d.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("a wait that was cancelled: %v", err)
	}
	must(t, direct.Release(t.Context(), holder.Hold(g.Token)))
	return r.Hold(0)
}

// leaveAcquire leaves an acquisition whose outcome is unknown.
func leaveAcquire(t *testing.T, d, _ *mysql.Driver, down func()) driver.Hold {
	t.Helper()
	warm := request("warm", false)
	g, err := d.Acquire(t.Context(), warm)
	must(t, err)
	must(t, d.Release(t.Context(), warm.Hold(g.Token)))
	down()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r := request("unknown", false)
	if _, err := d.Acquire(ctx, r); err == nil {
		t.Error("acquired without an answer")
	}
	return r.Hold(0)
}

func ignoreLost(err error) error {
	if errors.Is(err, driver.ErrLost) {
		return nil
	}
	return err
}

// Every method returns when its context ends, whatever the server does, and says why it could not connect.
func TestMethodsEndInTime(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		for _, way := range []string{"cut", "refuse"} {
			d, direct, proxy := onProxy(t, srv)
			held := request("held", false)
			g, err := d.Acquire(t.Context(), held)
			must(t, err)
			dead := request("dead", false) // the next request removes it, in a transaction
			dead.Name, dead.TTL = "dead", 20*time.Millisecond
			_, err = direct.Acquire(t.Context(), dead)
			must(t, err)
			time.Sleep(50 * time.Millisecond)
			h := held.Hold(g.Token)
			for i := range 2 { // with connections that are open, and without
				for what, f := range map[string]func(context.Context) error{
					"acquire": func(ctx context.Context) error {
						r := request(fmt.Sprint("x", i), i%2 == 0)
						r.Name = "free"
						_, err := d.Acquire(ctx, r)
						return err
					},
					"acquire dead": func(ctx context.Context) error {
						r := request(fmt.Sprint("y", i), true)
						r.Name = "dead"
						_, err := d.Acquire(ctx, r)
						return err
					},
					"release": func(ctx context.Context) error { return d.Release(ctx, driver.Hold{Name: "z", ID: "z"}) },
					"renew":   func(ctx context.Context) error { return d.Renew(ctx, h, time.Minute) },
					"inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, "a"); return err },
					"list":    func(ctx context.Context) error { _, err := d.List(ctx); return err },
					"break":   func(ctx context.Context) error { return d.Break(ctx, "a", g.Token) },
					"ping":    d.Ping,
				} {
					late, err := endsInTime(t, way+", "+what, f, func() {
						for i == 0 {
							proxy.Heal()
							if d.Ping(t.Context()) == nil {
								break
							}
						}
						if way == "cut" {
							proxy.Cut()
						} else {
							proxy.Refuse()
						}
					})
					if way == "refuse" && err != nil && late < endsLimit/2 && (!strings.Contains(err.Error(), "connection") || !errors.Is(err, driver.ErrUnavailable)) {
						t.Errorf("%s, %s: %v, want that the connection is refused", way, what, err)
					}
				}
			}
			proxy.Heal()
		}
	})
}

// endsLimit is the time that a call of endsInTime has.
const endsLimit = 150 * time.Millisecond

// endsInTime calls a method that is not answered once down has been called, and returns its error, and how late the
// machine was meanwhile. The method fails the test if it was late three times: on a loaded machine it may be late once.
func endsInTime(t *testing.T, what string, f func(context.Context) error, down func()) (late time.Duration, err error) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		down()
		ctx, cancel := context.WithTimeout(t.Context(), endsLimit)
		var took time.Duration
		took, late = testbed.Measure(func() { err = f(ctx) })
		cancel()
		switch {
		case err == nil:
			t.Errorf("%s: answered after %v", what, took)
		case took > endsLimit+50*time.Millisecond && attempt < 3:
			continue
		case took > endsLimit+50*time.Millisecond:
			t.Errorf("%s: three times late, after %v: %v", what, took, err)
		}
		return late, err
	}
}

// Close does not wait for a server that does not answer.
func TestCloseOnACutWay(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		_, _, prefix := fresh(t, connect(t, srv, ""))
		proxy := srv.Proxy(t)
		d, err := openURL(t.Context(), proxy.URL(), prefix)
		must(t, err)
		l := locker.New(d)
		cycle(t, l, "a")
		other := request("w", true)
		proxy.Cut()
		done := make(chan error, 1)
		go func() { // a request is under way
			_, err := d.Acquire(t.Context(), other)
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		took := testbed.Elapsed(func() { must(t, l.Close()) })
		if took > 200*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a request that was under way: %v", err)
		}
	})
}

// Close does not wait for a server that does not even greet.
func TestCloseWhileConnecting(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		proxy := srv.Proxy(t)
		proxy.Cut()
		d, err := openURL(t.Context(), proxy.URL(), fmt.Sprintf("c%d", prefixes.Add(1)))
		must(t, err)
		done, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := d.Acquire(context.WithoutCancel(t.Context()), request("w", true))
			done <- err
		}()
		for proxy.Stats().Conns == 0 {
			time.Sleep(time.Millisecond)
		}
		took := testbed.Elapsed(func() {
			go func() { closed <- d.Close() }()
			select {
			case err = <-closed:
			case <-time.After(5 * time.Second):
				proxy.Heal()
				err = <-closed
			}
		})
		must(t, err)
		if took > 200*time.Millisecond {
			t.Errorf("Close took %v", took)
		}
		if err := <-done; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a request that was connecting: %v", err)
		}
	})
}

// hungUp is a connection whose server hangs up during the handshake.
type hungUp struct{ net.Conn }

func (hungUp) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// A server that hangs up before its greeting is answered is away, as one that refuses connections is.
func TestServerHangsUp(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedMariaDB(t)
	var away atomic.Bool
	c := configOf(t, srv.URL())
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		conn, err := d.DialContext(ctx, network, addr)
		if err == nil && away.Load() {
			conn = hungUp{conn}
		}
		return conn, err
	}
	connector, err := gomysql.NewConnector(c)
	must(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { _ = db.Close() })
	db.SetMaxIdleConns(0)
	_, d, _ := fresh(t, db)
	must(t, d.Ping(t.Context()))
	away.Store(true)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = d.Acquire(ctx, request("a", false))
	if !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v, want ErrUnavailable", err)
	}
}

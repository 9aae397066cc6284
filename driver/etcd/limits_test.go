package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// calls returns all methods that ask the store, on a driver that holds a lock of
// TTL 30s under the name "held".
func calls(d *etcd.Driver, held driver.Hold) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Acquire": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, request("new", "id-new", 30*time.Second))
			return err
		},
		"Acquire with a fixed lease": func(ctx context.Context) error {
			r := request("new", "id-fixed", 30*time.Second)
			r.Renewed = false
			_, err := d.Acquire(ctx, r)
			return err
		},
		"try": func(ctx context.Context) error {
			_, err := d.Acquire(ctx, tryFor("new", "id-try"))
			return err
		},
		"Renew":   func(ctx context.Context) error { return d.Renew(ctx, held, 30*time.Second) },
		"Release": func(ctx context.Context) error { return d.Release(ctx, held) },
		"Inspect": func(ctx context.Context) error {
			_, err := d.Inspect(ctx, "held")
			return err
		},
		"List": func(ctx context.Context) error {
			_, err := d.List(ctx)
			return err
		},
		"Break": func(ctx context.Context) error { return d.Break(ctx, "held", 1) },
		"Ping":  d.Ping,
	}
}

// Every method returns soon after its context has ended, with an error that says
// that the store did not answer and, if it refuses connections, why.
func TestMethodsEndWithTheirContext(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	for name, fault := range map[string]struct {
		begin func(*testbed.Proxy)
		says  string
	}{
		"hangs":   {(*testbed.Proxy).Cut, "has not answered"},
		"refuses": {(*testbed.Proxy).Refuse, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // to each other only
			proxy := srv.Proxy(t)
			d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(randomPrefix()))
			held := acquire(t, d, request("held", "id-held", 30*time.Second))
			fault.begin(proxy)
			lost, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_ = d.Ping(lost) // uses up the connection that is reset
			cancel()
			methods := calls(d, held)
			for _, call := range slices.Sorted(maps.Keys(methods)) { // Acquire first, while its lease is fresh
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				ended := make(chan time.Time, 1) // its delay is that of this machine's timers
				context.AfterFunc(ctx, func() { ended <- time.Now() })
				err := methods[call](ctx)
				now := time.Now()
				if late := now.Sub(<-ended); late > 50*time.Millisecond {
					t.Errorf("%s returned %v after its context had ended", call, late)
				}
				if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), fault.says) ||
					errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNotAcquired) {
					t.Errorf("%s: %v, want ErrUnavailable that says %q", call, err, fault.says)
				}
				// A put that was under way may have been done. Nothing was done before.
				if want := call == "Acquire with a fixed lease" || call == "try"; errors.Is(err, driver.ErrNoTicket) != want {
					t.Errorf("%s: %v: ErrNoTicket: %v, want %v", call, err, !want, want)
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v, want an error that wraps the end of the context too", call, err)
				}
				cancel()
			}
			proxy.Heal()
		})
	}
}

// If no ticket is left, Close waits no longer than 100 ms for a store that hangs,
// whatever has happened before.
func TestCloseDoesNotWaitForAStoreThatHangs(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	for name, before := range map[string]func(*testing.T, *etcd.Driver, *testbed.Proxy){
		"released": func(t *testing.T, d *etcd.Driver, _ *testbed.Proxy) {
			release(t, d, acquire(t, d, request("used", "id-1", 30*time.Second)))
		},
		"watching": func(t *testing.T, d *etcd.Driver, _ *testbed.Proxy) {
			h := acquire(t, d, request("used", "id-1", 30*time.Second))
			time.Sleep(300 * time.Millisecond) // a lock that is held longer has a loss watch
			w := request("used", "id-2", 30*time.Second)
			granted := waitAt(t, d, w)
			release(t, d, h)
			g := <-granted
			release(t, d, w.Hold(g.Token))
		},
		"an acquisition that was not answered": func(t *testing.T, d *etcd.Driver, p *testbed.Proxy) {
			r := request("used", "id-1", 30*time.Second)
			release(t, d, acquire(t, d, r))
			p.Cut()
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			r.ID = "id-2"
			if _, err := d.Acquire(ctx, r); err == nil {
				t.Fatal("acquired")
			}
			p.Reset()
			p.Heal()
			// The ticket is not there; the core needs no more.
			waitFor(t, 10*time.Second, "answer to the release", func() bool {
				return errors.Is(d.Release(t.Context(), r.Hold(0)), driver.ErrLost)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := srv.Proxy(t)
			d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(randomPrefix()))
			before(t, d, proxy)
			proxy.Cut()
			var err error
			took := testbed.Elapsed(func() { err = d.Close() })
			if err != nil {
				t.Error(err)
			}
			if took > 150*time.Millisecond {
				t.Errorf("Close took %v", took)
			}
			proxy.Reset()
			proxy.Heal()
		})
	}
}

// A release was not answered, and another lock keeps the shared lease alive. If the
// release is repeated as the core does, the ticket is gone within two seconds after
// the connection is back.
func TestReleaseAfterAnOutage(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes the store away for seven seconds at a time")
	}
	srv := testbed.SharedEtcd(t)
	for name, outage := range map[string]func(*testbed.Proxy){
		"hangs": (*testbed.Proxy).Cut, "refuses": (*testbed.Proxy).Refuse,
		"loses answers": func(p *testbed.Proxy) { p.DropReplies(true) },
	} {
		for opened, dial := range map[string]func(*testing.T, *testbed.Proxy, string) driver.Driver{
			"client": func(t *testing.T, p *testbed.Proxy, prefix string) driver.Driver {
				return newDriver(t, newClient(t, p.Addr()), etcd.WithPrefix(prefix))
			},
			"url": func(t *testing.T, p *testbed.Proxy, prefix string) driver.Driver {
				d, err := open(t.Context(), p.URL()+"?prefix="+prefix)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = d.Close() })
				return d
			},
		} {
			t.Run(name+"/"+opened, func(t *testing.T) {
				t.Parallel()
				releaseAfter(t, srv, outage, dial)
			})
		}
	}
}

func releaseAfter(t *testing.T, srv *testbed.Server, outage func(*testbed.Proxy), dial func(*testing.T, *testbed.Proxy, string) driver.Driver) {
	proxy, prefix := srv.Proxy(t), randomPrefix()
	d := dial(t, proxy, prefix)
	direct := newClient(t, srv.Addr())
	other := acquire(t, d, request("other", "id-other", 30*time.Second))
	h := acquire(t, d, request("freed", "id-freed", 30*time.Second))
	outage(proxy)
	stop := make(chan struct{})
	released := make(chan error, 1)
	go func() { released <- insist(t.Context(), d, h) }()
	go func() { // the core renews the other one
		for {
			select {
			case <-stop:
				return
			case <-time.After(200 * time.Millisecond):
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				_ = d.Renew(ctx, other, 30*time.Second)
				cancel()
			}
		}
	}()
	time.Sleep(7 * time.Second)
	proxy.Reset() // discards what was sent
	proxy.Heal()
	var err error
	both := testbed.Elapsed(func() {
		took := testbed.Elapsed(func() {
			waitFor(t, 30*time.Second, "end of the ticket", func() bool { return count(t, direct, prefix+"/freed") == 0 })
		})
		t.Logf("free %v after the way was back", took.Round(time.Millisecond))
		if took > 2*time.Second {
			t.Errorf("it took %v, want at most 2s", took)
		}
		err = <-released
	})
	if err != nil && !errors.Is(err, driver.ErrLost) {
		t.Errorf("release: %v", err)
	}
	if both > 2*time.Second {
		t.Errorf("the release was answered after %v, want at most 2s", both)
	}
	close(stop)
}

// insist repeats a release as the core does, until it is answered.
func insist(ctx context.Context, d driver.Driver, h driver.Hold) error {
	for delay := 20 * time.Millisecond; ; delay = min(2*delay, 250*time.Millisecond) {
		try, cancel := context.WithTimeout(ctx, time.Second)
		err := d.Release(try, h)
		cancel()
		if err == nil || errors.Is(err, driver.ErrLost) || ctx.Err() != nil {
			return err
		}
		time.Sleep(delay)
	}
}

// A ticket with a minimum hold stays for that long after its grant, under a lease
// that no other ticket ends. The other tickets end with the driver.
func TestMinHold(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	client := dialed(t, []string{srv.Addr()}, unary(func(_ context.Context, _ string, req, _ any, next func() error) error {
		if txn, ok := req.(*etcdserverpb.TxnRequest); ok && strings.Contains(txn.String(), `id-job`) {
			time.Sleep(800 * time.Millisecond) // meanwhile the lease runs
		}
		return next()
	}))
	const hold = 3 * time.Second
	for name, waits := range map[string]bool{"granted at once": false, "after a wait": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := randomPrefix()
			d, err := etcd.New(client, etcd.WithPrefix(prefix))
			if err != nil {
				t.Fatal(err)
			}
			acquire(t, d, request("other", "id-other", hold)) // of the same TTL, and its lease is old
			time.Sleep(400 * time.Millisecond)
			r := request("job", "id-job", hold)
			r.MinHold = hold
			var granted time.Time
			if waits {
				h := acquire(t, d, request("job", "id-before", 30*time.Second)) // whose lease nobody keeps alive
				g := waitAt(t, d, r)
				time.Sleep(600 * time.Millisecond)
				granted = time.Now()
				release(t, d, h)
				<-g
			} else {
				acquire(t, d, r)
				granted = time.Now()
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			if n := count(t, client, prefix+"/other"); n != 0 {
				t.Error("a ticket without a minimum hold outlives its driver")
			}
			for time.Since(granted) < hold {
				if count(t, client, prefix+"/job") == 0 && time.Since(granted) < hold {
					t.Fatalf("the ticket is gone %v after its grant, want it to stay for %v", time.Since(granted), hold)
				}
				time.Sleep(20 * time.Millisecond)
			}
			waitFor(t, d.Bounds(hold).Crash, "end of the ticket", func() bool { return count(t, client, prefix) == 0 })
		})
	}
}

// If another process breaks a ticket, a waiter of the same driver behind it is
// granted as soon as after a release, and the holder is notified of the cause.
func TestBreakWakesAWaiterOfTheSameDriver(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	prefix := etcd.WithPrefix(randomPrefix())
	other := newDriver(t, newClient(t, srv.Addr()), prefix)
	notified := make(chan error, 10)
	for i, tc := range []struct{ held, after time.Duration }{
		{after: 0},
		{after: 20 * time.Millisecond},
		{after: 70 * time.Millisecond}, // before it has a loss watch
		{held: 300 * time.Millisecond, after: 0},
		{held: 300 * time.Millisecond, after: 20 * time.Millisecond},
		{held: 300 * time.Millisecond, after: 70 * time.Millisecond},
		{held: 300 * time.Millisecond, after: 300 * time.Millisecond},
	} {
		name, after := fmt.Sprint("name-", i), tc.after
		d := newDriver(t, newClient(t, srv.Addr()), prefix)
		d.NotifyLoss(func(_ driver.Hold, cause error) { notified <- cause })
		h := acquire(t, d, request(name, "id-h-"+name, time.Minute))
		time.Sleep(tc.held)
		w := request(name, "id-w-"+name, time.Minute)
		granted := waitAt(t, d, w)
		time.Sleep(after)
		if err := other.Break(t.Context(), name, h.Token); err != nil {
			t.Fatal(err)
		}
		var g driver.Grant
		took := testbed.Elapsed(func() { g = <-granted })
		t.Logf("broken %v after the waiter had queued: granted after %v", after, took)
		if took > 100*time.Millisecond {
			t.Error("that is more than 100ms")
		}
		if cause := <-notified; !errors.Is(cause, driver.ErrLost) || !strings.Contains(cause.Error(), "the ticket was removed from the queue") {
			t.Errorf("the cause is %v", cause)
		}
		release(t, d, w.Hold(g.Token))
	}
}

// No ticket has a number that etcd takes for no bound, or that is too large for it.
func TestBreakOfNoNumber(t *testing.T) {
	d := newDriver(t, newClient(t, testbed.SharedEtcd(t).Addr()), etcd.WithPrefix(randomPrefix()))
	h := acquire(t, d, request("a", "id-a", time.Minute))
	for _, token := range []uint64{0, math.MaxInt64 + 1, math.MaxUint64} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		if err := d.Break(ctx, "a", token); !errors.Is(err, driver.ErrLost) {
			t.Errorf("Break of %d: %v, want ErrLost", token, err)
		}
		cancel()
	}
	release(t, d, h)
}

// A ping shows what is missing, and writes nothing.
func TestPing(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults())
	root := newClient(t, srv.Addr())
	d := newDriver(t, root)
	revision := func() int64 {
		resp, err := root.Get(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	before := revision()
	if err := d.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if after := revision(); after != before {
		t.Error("a ping has written")
	}
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for user, perm := range map[string]clientv3.PermissionType{
		"reader": clientv3.PermissionType(clientv3.PermRead), "writer": clientv3.PermissionType(clientv3.PermWrite),
	} {
		must(root.RoleAdd(ctx, user))
		must(root.RoleGrantPermission(ctx, user, "locker/", clientv3.GetPrefixRangeEnd("locker/"), perm))
		must(root.UserAdd(ctx, user, "secret-word"))
		must(root.UserGrantRole(ctx, user, user))
	}
	withUsers(t, srv)
	for user, lacks := range map[string]string{"reader": "the user may not write below locker/", "writer": "the user may not read below locker/", "worker": ""} {
		works, pass := lacks == "", "secret-word"
		if works {
			pass = workersPassword
		}
		u, err := open(ctx, "etcd://"+user+":"+pass+"@"+srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		p := u.(driver.Pinger)
		took := testbed.Elapsed(func() { err = p.Ping(ctx) })
		if works != (err == nil) || err != nil && (errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), lacks)) {
			t.Errorf("ping of %s: %v", user, err)
		}
		took += testbed.Elapsed(func() { _, err = u.Acquire(ctx, request("refused", "id-"+user, time.Minute)) })
		if works != (err == nil) || err != nil && (errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNoTicket)) {
			t.Errorf("acquisition of %s: %v, want a refusal that has left no ticket", user, err)
		}
		if took > time.Second {
			t.Errorf("it took %v until %s was notified", took, user)
		}
		if err := u.Close(); err != nil {
			t.Error(err)
		}
	}
}

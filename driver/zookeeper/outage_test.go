package zookeeper_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestOutage: a store refuses connections, from the beginning or after a while, or
// hangs. Every method returns when its context ends and says why, and an Acquire
// whose request cannot have been sent says that it left nothing.
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		warm, hang bool
		want       error // of the network
	}{
		"refused":       {want: syscall.ECONNREFUSED},
		"refused later": {warm: true, want: syscall.ECONNREFUSED},
		"hangs":         {hang: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, p, _ := through(t)
			if !c.warm && c.hang {
				p.Cut()
			} else if !c.warm {
				p.Refuse()
			}
			d := open(t, url)
			if c.warm {
				r := request("x", "warm-1")
				g := must[driver.Grant](t)(d.Acquire(ctxFor(t, 10*time.Second), r))
				if err := d.Release(ctxFor(t, 10*time.Second), r.Hold(g.Token)); err != nil {
					t.Fatal(err)
				}
				p.Refuse()
			}
			time.Sleep(1200 * time.Millisecond) // the client has tried to connect
			r := request("x", "outage-1")
			methods := map[string]func(ctx context.Context) error{
				"Acquire": func(ctx context.Context) error { _, err := d.Acquire(ctx, r); return err },
				"Renew":   func(ctx context.Context) error { return d.Renew(ctx, r.Hold(1), time.Minute) },
				"Release": func(ctx context.Context) error { return d.Release(ctx, r.Hold(1)) },
				"Inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, "x"); return err },
				"List":    func(ctx context.Context) error { _, err := d.(driver.Lister).List(ctx); return err },
				"Break":   func(ctx context.Context) error { return d.(driver.Breaker).Break(ctx, "x", 1) },
				"Ping":    func(ctx context.Context) error { return d.(driver.Pinger).Ping(ctx) },
			}
			for method, ask := range methods {
				const bound = 300 * time.Millisecond
				var err error
				took, late := testbed.Measure(func() {
					ctx, cancel := context.WithTimeout(context.Background(), bound)
					defer cancel()
					err = ask(ctx)
				})
				knows := late < bound/2 // the driver knows the reason
				if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnavailable) || knows && c.want != nil && !errors.Is(err, c.want) {
					t.Errorf("%s: %v", method, err)
				}
				if took > bound+50*time.Millisecond {
					t.Errorf("%s returned after %v, %v after its context", method, took, took-bound)
				}
				if method == "Acquire" && !errors.Is(err, driver.ErrNoTicket) {
					t.Errorf("a request that was not sent may have left a ticket: %v", err)
				}
			}
			var err error
			took := testbed.Elapsed(func() { _, err = d.Acquire(context.Background(), r) })
			if took > 8*time.Second || !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("without a context's end, after %v: %v", took, err)
			}
			if took := testbed.Elapsed(func() { err = d.Close() }); err != nil || took > 150*time.Millisecond {
				t.Errorf("Close took %v: %v", took, err)
			}
		})
	}
}

// TestCloseWhileHanging closes a driver whose server hangs, with nothing held.
func TestCloseWhileHanging(t *testing.T) {
	t.Parallel()
	url, p, _ := through(t)
	d := open(t, url)
	r := request("x", "close-1")
	g := must[driver.Grant](t)(d.Acquire(ctxFor(t, 10*time.Second), r))
	if err := d.Release(ctxFor(t, 10*time.Second), r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	var err error
	took := testbed.Elapsed(func() { err = d.Close() })
	if err != nil {
		t.Error(err)
	}
	if took > 150*time.Millisecond {
		t.Errorf("Close took %v", took)
	}
}

// TestSentAcquireMayLeaveTicket: the create reaches the server, and its answer does
// not arrive. The error does not say that nothing was left.
func TestSentAcquireMayLeaveTicket(t *testing.T) {
	t.Parallel()
	url, p, direct := through(t)
	ctx := ctxFor(t, 30*time.Second)
	d := open(t, url)
	warm := request("warm", "warm-1")
	must[driver.Grant](t)(d.Acquire(ctx, warm))
	p.HoldReplies(true)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	r := request("x", "sent-1")
	if _, err := d.Acquire(short, r); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("%v", err)
	}
	again, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := d.Acquire(again, r); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("asked again: %v", err)
	}
	p.Heal()
	for _, h := range []driver.Hold{r.Hold(0), warm.Hold(0)} {
		if err := d.Release(ctx, h); err != nil {
			t.Error(err)
		}
	}
	empty(t, admin(t), direct)
}

// TestMissingRights acquires a lock below a node that the user may only read: the
// error comes at once, is no outage, and leaves nothing.
func TestMissingRights(t *testing.T) {
	t.Parallel()
	at, conn, ctx := storeURL(t), admin(t), ctxFor(t, 20*time.Second)
	warm := open(t, at) // creates the nodes above
	if err := warm.(driver.Pinger).Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.SetACL(base(at), zk.WorldACL(zk.PermRead), -1); err != nil {
		t.Fatal(err)
	}
	d := open(t, at)
	if _, err := d.Inspect(ctx, "x"); err != nil { // from now on there is a session
		t.Fatal(err)
	}
	r := request("x", "rights-1")
	for method, ask := range map[string]func() error{
		"Acquire": func() error {
			_, err := d.Acquire(ctx, r)
			if !errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("a refused Acquire may have left a ticket: %v", err)
			}
			return err
		},
		"Ping": func() error { return d.(driver.Pinger).Ping(ctx) },
	} {
		var err error
		took := testbed.Elapsed(func() { err = ask() })
		if took > 200*time.Millisecond || !errors.Is(err, zk.ErrNoAuth) || errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("%s, after %v: %v", method, took, err)
		}
	}
}

// TestPing leaves nothing but the prefix.
func TestPing(t *testing.T) {
	t.Parallel()
	at, ctx := storeURL(t), ctxFor(t, 20*time.Second)
	d := open(t, at)
	for range 2 {
		if err := d.(driver.Pinger).Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if left := nodes(t, admin(t), base(at)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, _, err := admin(t).Get(base(at) + "/%protocol"); err != nil {
		t.Errorf("the prefix has no version, and no time of the last sweep: %v", err)
	}
}

// TestMinHold closes a driver that holds a lock with a minimum hold, and drops
// another one like a process that ends: the ticket stays for its minimum hold, and
// not for much longer than its lease.
func TestMinHold(t *testing.T) {
	t.Parallel()
	at := strings.Replace(storeURL(t), "session="+session.String(), "session=4s", 1)
	ctx := ctxFor(t, time.Minute)
	d, other := open(t, at), open(t, at)
	r := request("x", "kept-1")
	r.MinHold, r.TTL = 20*time.Second, 20*time.Second
	if _, err := d.Acquire(ctx, r); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, driver.ErrNoTicket) {
		t.Fatalf("longer than the session can give: %v", err)
	}
	most := driver.BoundsOf(d, time.Second).MaxTTL
	if most <= 0 || most >= 4*time.Second {
		t.Fatalf("MaxTTL %v", most)
	}
	r.MinHold, r.TTL = most, most
	must[driver.Grant](t)(d.Acquire(ctx, r))
	granted := time.Now()
	next, joined := request("x", "next-1"), make(chan struct{})
	next.Joined = func() { close(joined) }
	nextAt := make(chan time.Time, 1)
	go func() {
		if _, err := other.Acquire(ctx, next); err != nil {
			t.Error(err)
		}
		nextAt <- time.Now()
	}()
	<-joined
	var err error
	took := testbed.Elapsed(func() { err = d.Close() })
	if err != nil {
		t.Error(err)
	}
	if took > 150*time.Millisecond {
		t.Errorf("Close took %v", took)
	}
	stayed := (<-nextAt).Sub(granted)
	t.Logf("a minimum hold of %v: the next was granted after %v", most, stayed.Round(time.Millisecond))
	if crash := driver.BoundsOf(other, most).Crash; stayed < most || stayed > most+crash {
		t.Errorf("a minimum hold of %v: the next was granted after %v", most, stayed)
	}
}

// TestMinHoldOfOthers: a minimum hold on a user's connection is refused.
func TestMinHoldOfOthers(t *testing.T) {
	t.Parallel()
	_, d := own(t, session, zookeeper.WithPrefix(base(storeURL(t))))
	r := request("x", "kept-1")
	r.MinHold = time.Second
	if _, err := d.Acquire(ctxFor(t, 10*time.Second), r); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, driver.ErrNoTicket) {
		t.Fatal(err)
	}
}

// TestCauseOfBreak breaks a lock: the holder's driver reports it, with the cause that
// every driver gives.
func TestCauseOfBreak(t *testing.T) {
	t.Parallel()
	at, ctx := storeURL(t), ctxFor(t, 20*time.Second)
	d, other := open(t, at), open(t, at)
	notified := make(chan error, 1)
	d.(driver.LossNotifier).NotifyLoss(func(_ driver.Hold, cause error) { notified <- cause })
	r := request("x", "broken-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	if err := other.(driver.Breaker).Break(ctx, "x", g.Token); err != nil {
		t.Fatal(err)
	}
	took := testbed.Elapsed(func() {
		select {
		case cause := <-notified:
			if !errors.Is(cause, driver.ErrLost) || !strings.Contains(cause.Error(), "the ticket was removed from the queue") {
				t.Error(cause)
			}
		case <-time.After(20 * time.Second):
		}
	})
	if took > time.Second {
		t.Errorf("notified after %v", took)
	}
	if err := other.(driver.Breaker).Break(ctx, "x", g.Token); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
}

// A lock that is broken before its node is watched is not renewed.
func TestBrokenBeforeTheWatch(t *testing.T) {
	t.Parallel()
	at, ctx := storeURL(t), ctxFor(t, 20*time.Second)
	d, other := open(t, at), open(t, at)
	r := request("x", "broken-2")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	if err := other.(driver.Breaker).Break(ctx, "x", g.Token); err != nil {
		t.Fatal(err)
	}
	if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal: %v, want ErrLost", err)
	}
}

// TestUnknownHost names the host in the error.
func TestUnknownHost(t *testing.T) {
	t.Parallel()
	d := open(t, "zookeeper://host.invalid:2181")
	ctx, dns := ctxFor(t, 20*time.Second), new(net.DNSError)
	err := d.(driver.Pinger).Ping(ctx)
	for !errors.As(err, &dns) && ctx.Err() == nil {
		err = d.(driver.Pinger).Ping(ctx) // Ping waits for a second, in which the lookup may not have ended
	}
	if !errors.As(err, &dns) || !errors.Is(err, driver.ErrUnavailable) {
		t.Error(err)
	}
}

// TestLapsedLease renews a fixed lease that is over, in a session that is not.
func TestLapsedLease(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, 20*time.Second)
	d := open(t, storeURL(t))
	r := request("x", "fixed-1")
	r.TTL, r.Renewed = 2*time.Second, false // long enough for an answer on a busy machine
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	if err := d.Renew(ctx, r.Hold(g.Token), r.TTL); err != nil {
		t.Fatal(err)
	}
	time.Sleep(r.TTL + 50*time.Millisecond)
	if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a lease that is over was revived: %v", err)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
}

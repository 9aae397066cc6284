package redlock_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

var ids atomic.Int64

func newID() string { return "id-" + strconv.FormatInt(ids.Add(1), 10) }

func openAt(t *testing.T, address string) *redlock.Driver {
	t.Helper()
	d, err := open(t.Context(), address, prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*redlock.Driver)
}

// over is a driver over clients of the user.
func over(t *testing.T, addrs []string) *redlock.Driver {
	t.Helper()
	var cs []goredis.UniversalClient
	for _, addr := range addrs {
		c := goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		cs = append(cs, c)
	}
	d, err := redlock.New(cs, redlock.WithPrefix(prefix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// verbs are all requests of a driver, by name.
func verbs(d *redlock.Driver, name string) map[string]func(context.Context) error {
	h := driver.Hold{Name: name, ID: newID()}
	acquire := func(wait bool) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := d.Acquire(ctx, driver.Request{Name: name, ID: newID(), TTL: time.Second, Wait: wait})
			return err
		}
	}
	return map[string]func(context.Context) error{
		"try":     acquire(false),
		"acquire": acquire(true),
		"renew":   func(ctx context.Context) error { return d.Renew(ctx, h, time.Second) },
		"release": func(ctx context.Context) error { return d.Release(ctx, h) },
		"inspect": func(ctx context.Context) error { _, err := d.Inspect(ctx, name); return err },
		"break":   func(ctx context.Context) error { return d.Break(ctx, name, 1) },
		"list":    func(ctx context.Context) error { _, err := d.List(ctx); return err },
		"ping":    d.Ping,
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

// A majority that refuses everybody is an outage; one that refuses this caller is none,
// and is reported at once.
func TestRefusals(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	for i, c := range cs[:2] {
		if err := c.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err(); err != nil {
			t.Fatal(i, err)
		}
	}
	d := openAt(t, nodes.URL())
	for verb, f := range verbs(d, "a") {
		if verb == "inspect" || verb == "list" {
			continue
		}
		err := bounded(t, verb, 5*time.Second, f)
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "NOREPLICAS") {
			t.Errorf("%s: %v", verb, err)
		}
	}
	for _, c := range cs {
		c.ConfigSet(t.Context(), "min-replicas-to-write", "0")
		c.FlushAll(t.Context())
		c.Do(t.Context(), "ACL", "SETUSER", "nokeys", "reset", "on", ">secret", "~other:*", "&*", "+@all")
		c.Do(t.Context(), "ACL", "SETUSER", "nozadd", "reset", "on", ">secret", "~*", "&*", "+@all", "-zadd")
		c.Do(t.Context(), "ACL", "SETUSER", "nosubscribe", "reset", "on", ">secret", "~*", "&*", "+@all", "-subscribe")
	}
	for _, who := range strings.Fields("nokeys nozadd nosubscribe wrong") {
		d := openAt(t, strings.Replace(nodes.URL(), "redlock://", "redlock://"+who+":secret@", 1))
		err := atOnce(t, who, d.Ping)
		if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: ping: %v", who, err)
		}
		if who != "nokeys" && who != "wrong" {
			continue
		}
		for _, wait := range []bool{false, true} {
			r := driver.Request{Name: "a", ID: newID(), TTL: time.Minute, Wait: wait}
			err := atOnce(t, who, func(ctx context.Context) error { _, err := d.Acquire(ctx, r); return err })
			if err == nil || errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("%s: acquire: %v", who, err)
			}
		}
	}
	for _, c := range cs {
		if keys := c.Keys(t.Context(), "*").Val(); len(keys) > 1 {
			t.Errorf("what was refused has left %q", keys)
		}
	}
}

// If nothing was sent to any node, no ticket is left. A node that has not answered may
// have it.
func TestNothingSent(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	ways := nodes.Proxies(t)
	// The nodes have the protocol version, d has read it, and d holds nothing: it would
	// renew a lease when the nodes are back, and a request that is queued behind an
	// unanswered renewal is not sent.
	first := driver.Request{Name: "first", ID: newID(), TTL: time.Minute}
	if _, err := openAt(t, nodes.URL()).Acquire(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	d := openAt(t, ways.URL())
	if _, err := d.Inspect(t.Context(), "first"); err != nil {
		t.Fatal(err)
	}
	ways.Refuse()
	// A request over an old connection may have been sent: each connection is tried
	// once.
	for refused := 0; refused < 5; {
		if err := d.Ping(t.Context()); err == nil || strings.Contains(err.Error(), "EOF") || strings.Contains(err.Error(), "reset") {
			refused = 0
			continue
		}
		refused++
	}
	for _, wait := range []bool{false, true} {
		_, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: newID(), TTL: time.Minute, Wait: wait})
		if !errors.Is(err, driver.ErrNoTicket) || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("nothing sent: %v", err)
		}
	}
	ways.Heal()
	eventually(t, "an answer", func() bool { return d.Ping(t.Context()) == nil })
	ways.Cut()
	r := driver.Request{Name: "a", ID: newID(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), r); err == nil || errors.Is(err, driver.ErrNoTicket) || !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("without an answer: %v", err)
	}
	ways.Heal()
}

// opens are the ways to open a driver.
var opens = map[string]func(*testing.T, *testbed.ProxySet) *redlock.Driver{
	"url":     func(t *testing.T, w *testbed.ProxySet) *redlock.Driver { t.Helper(); return openAt(t, w.URL()) },
	"clients": func(t *testing.T, w *testbed.ProxySet) *redlock.Driver { t.Helper(); return over(t, w.Addrs()) },
}

func TestConnectionRefused(t *testing.T) {
	ways := testbed.RedisN(t, 3).Proxies(t)
	ways.Refuse()
	for what, open := range opens {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			for verb, f := range verbs(open(t, ways), "a") {
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

// Every method returns within 50 ms after its context's end, whatever the nodes
// do, and Close within 100 ms.
func TestContextEnds(t *testing.T) {
	nodes := testbed.RedisN(t, 3)
	for fault, set := range map[string]func(*testbed.ProxySet){
		"cut":   (*testbed.ProxySet).Cut,
		"reset": func(w *testbed.ProxySet) { w.Cut(); w.Reset() },
	} {
		for what, open := range opens {
			name := fault + "/" + what // requests of others may still arrive
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ways := nodes.Proxies(t)
				d := open(t, ways)
				r := driver.Request{Name: name, ID: newID(), TTL: time.Minute}
				if _, err := d.Acquire(t.Context(), r); err != nil {
					t.Fatal(err)
				}
				if err := d.Release(t.Context(), r.Hold(0)); err != nil {
					t.Fatal(err)
				}
				set(ways)
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
				ways.Heal()
			})
		}
	}
}

// A hash under the key of a name, on a majority, is another library's holder.
func TestForeignHash(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	d := openAt(t, nodes.URL())
	c := client(t, nodes.URL())
	k := take(t, c, "mine")
	for _, n := range cs {
		n.HSet(t.Context(), keyOf("a"), "theirs", 1)
	}
	r := driver.Request{Name: "a", ID: newID(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), "another library") {
		t.Errorf("a try at what another library holds: %v", err)
	}
	q, err := d.Inspect(t.Context(), "a")
	if err != nil || len(q) != 1 || !q[0].Held || q[0].Owner != redlock.Foreign {
		t.Errorf("the queue is %+v, %v", q, err)
	}
	errs := d.RenewAll(t.Context(), []driver.Renewal{{Hold: r.Hold(0), TTL: time.Minute}, {Hold: driver.Hold{Name: "mine", ID: "nobody"}, TTL: time.Minute}})
	if !errors.Is(errs[0], driver.ErrLost) || !errors.Is(errs[1], driver.ErrLost) {
		t.Errorf("renewals beside a foreign hash: %v", errs)
	}
	got := queue(t, c, "a", 2)
	if err := c.Break(t.Context(), "mine", 0); !errors.Is(err, locker.ErrLost) {
		t.Errorf("token 0 broke a holder of ours: %v", err)
	}
	shown := func() uint64 {
		t.Helper()
		q, err := d.Inspect(t.Context(), "a")
		if err != nil || len(q) == 0 || q[0].Owner != redlock.Foreign {
			t.Fatalf("the queue is %+v, %v", q, err)
		}
		return q[0].Token
	}
	hash := shown()
	if err := c.Break(t.Context(), "a", hash); err != nil {
		t.Errorf("break: %v", err)
	}
	release(t, granted(t, got))
	release(t, k)
	for _, n := range cs {
		n.Set(t.Context(), keyOf("a"), "theirs", 0)
	}
	for _, token := range []uint64{0, hash} {
		if err := c.Break(t.Context(), "a", token); !errors.Is(err, locker.ErrLost) {
			t.Errorf("token %d, of another holder, broke it: %v", token, err)
		}
	}
	if err := c.Break(t.Context(), "a", shown()); err != nil {
		t.Errorf("break: %v", err)
	}
	release(t, take(t, c, "a"))
}

// Close leaves a ticket with a minimum hold, for its whole lease.
func TestMinHold(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	d, other := openAt(t, nodes.URL()), openAt(t, nodes.URL())
	holder := driver.Request{Name: "a", ID: newID(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	r := driver.Request{Name: "a", ID: newID(), TTL: time.Minute, MinHold: time.Minute, Wait: true}
	r.Joined = func() { go func() { _ = other.Release(context.Background(), holder.Hold(0)) }() }
	if g, err := d.Acquire(t.Context(), r); err != nil || g.Claim != 0 {
		t.Fatalf("granted %+v, %v; want the whole lease", g, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	q, err := other.Inspect(t.Context(), "a")
	left := time.Minute - time.Since(begun) - 10*time.Millisecond // Redis counts milliseconds
	if err != nil || len(q) != 1 || q[0].ID != r.ID || q[0].Remaining < left {
		t.Errorf("after Close the queue is %+v, %v", q, err)
	}
}

// TestShorten: a lease that is shortened ends after that time, and not before, on a majority,
// and the first waiter is granted then.
func TestShorten(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	d, other := openAt(t, nodes.URL()), openAt(t, nodes.URL())
	for _, shared := range []bool{false, true} {
		r := driver.Request{Name: newID(), ID: newID(), TTL: time.Minute, Shared: shared}
		if err := d.Shorten(t.Context(), r.Hold(0), time.Second); !errors.Is(err, driver.ErrLost) {
			t.Errorf("shared=%t: of nothing: %v", shared, err)
		}
		if _, err := d.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := d.Shorten(t.Context(), r.Hold(0), time.Hour); err != nil {
			t.Error(err)
		}
		if q, err := other.Inspect(t.Context(), r.Name); err != nil || len(q) != 1 || q[0].Remaining > time.Minute {
			t.Errorf("shared=%t: the queue is %+v, %v", shared, q, err)
		}
		wait := driver.Request{Name: r.Name, ID: newID(), TTL: time.Minute, Wait: true}
		joined, granted := make(chan struct{}), make(chan error, 1)
		wait.Joined = func() { close(joined) }
		go func() { _, err := other.Acquire(context.Background(), wait); granted <- err }()
		<-joined
		const left = 300 * time.Millisecond
		begun := time.Now()
		if err := d.Shorten(t.Context(), r.Hold(0), left); err != nil {
			t.Fatal(err)
		}
		took := testbed.Elapsed(func() {
			if err := <-granted; err != nil {
				t.Error(err)
			}
		})
		if early := time.Since(begun); early < left {
			t.Errorf("shared=%t: granted after %v of %v", shared, early, left)
		}
		if took > left+600*time.Millisecond {
			t.Errorf("shared=%t: granted after %v, want %v", shared, took, left)
		}
		if err := d.Renew(t.Context(), r.Hold(0), time.Minute); !errors.Is(err, driver.ErrLost) {
			t.Errorf("shared=%t: a renewal after the end: %v", shared, err)
		}
		if err := other.Release(t.Context(), wait.Hold(0)); err != nil {
			t.Error(err)
		}
	}
}

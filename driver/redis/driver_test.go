package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.RegisterChild("hold", childHolds)
	testbed.RegisterChild("wait", childWaits)
	testbed.RunChild()
	goleak.VerifyTestMain(m,
		// go-redis's own, which dials a server that is down once a second until
		// a second after its pool was closed.
		goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// newName returns a lock name that nobody else uses.
func newName() string { return fmt.Sprintf("test-%016x", rand.Uint64()) }

// dial is a client of the server itself.
func dial(t *testing.T, addr string) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: addr})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// process opens a Locker as a process of its own would.
func process(t *testing.T, url string, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	l, err := locker.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// take acquires what is to be had soon.
func take(t *testing.T, l *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, append(opts, locker.WithWait(20*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t *testing.T, k *locker.Lock) {
	t.Helper()
	if err := k.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// acquiring acquires in the background.
func acquiring(t *testing.T, l *locker.Client, name string, opts ...locker.Option) <-chan *locker.Lock {
	t.Helper()
	got := make(chan *locker.Lock, 1)
	go func() {
		k, err := l.Acquire(t.Context(), name, opts...)
		if err != nil {
			t.Errorf("acquire %q: %v", name, err)
		}
		got <- k
	}()
	return got
}

// await waits until n tickets stand in line.
func await(t *testing.T, l *locker.Client, name string, n int) {
	t.Helper()
	until(t, func() error {
		line, err := l.Inspect(t.Context(), name)
		if err != nil || len(line.Tickets) != n {
			return fmt.Errorf("the line is %+v, %w; want %d tickets", line.Tickets, err, n)
		}
		return nil
	})
}

// until waits until f returns nil.
func until(t *testing.T, f func() error) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal(err)
		}
	}
}

// within fails unless got comes in time; it returns how long that took.
func within(t *testing.T, got <-chan *locker.Lock, bound time.Duration) (*locker.Lock, time.Duration) {
	t.Helper()
	begun := time.Now()
	select {
	case k := <-got:
		took := time.Since(begun)
		if k == nil {
			t.FailNow()
		}
		if took > bound {
			t.Errorf("granted after %v, want %v at most", took, bound)
		}
		return k, took
	case <-time.After(bound + 20*time.Second):
		t.Fatalf("not granted within %v", bound+20*time.Second)
		return nil, 0
	}
}

// load is what a busy machine may add to a bound.
const load = 300 * time.Millisecond

// childHolds acquires LOCK with a TTL of 2 s, and holds until it is killed.
func childHolds() {
	l, err := locker.Open(context.Background(), os.Getenv("URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	k, err := l.Acquire(context.Background(), os.Getenv("LOCK"), locker.WithTTL(2*time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("held", k.Token())
	<-k.Done()
	fmt.Println("ended", k.Err())
}

// childWaits waits for LOCK for ever.
func childWaits() {
	l, err := locker.Open(context.Background(), os.Getenv("URL"), locker.WithObserver(func(e locker.Event) {
		if e.Kind == locker.EventWaiting {
			fmt.Println("waiting")
		}
	}))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if k, err := l.Acquire(context.Background(), os.Getenv("LOCK")); err == nil {
		fmt.Println("held", k.Token())
	}
	select {}
}

func child(t *testing.T, what, url, name string) *testbed.Process {
	t.Helper()
	return testbed.Child(t, what, "URL="+url, "LOCK="+name)
}

// TestHolderKilled: from SIGKILL to the next grant it takes what is left of
// the lease, and 0.2 s at most.
func TestHolderKilled(t *testing.T) {
	srv := testbed.SharedRedis(t)
	name := newName()
	p := child(t, "hold", srv.URL(), name)
	p.WaitLine("held")
	l := process(t, srv.URL())
	got := acquiring(t, l, name)
	await(t, l, name, 2)
	c := dial(t, srv.Addr())
	d, _ := redis.New(c)
	time.Sleep(1200 * time.Millisecond) // past a renewal, so that the waiter's first knowledge is old
	p.Kill()
	left, err := c.PTTL(t.Context(), d.Key(name)).Result()
	if err != nil {
		t.Fatal(err)
	}
	k, took := within(t, got, left+200*time.Millisecond+load)
	t.Logf("SIGKILL to grant: %v, of which %v was left of the lease", took, left)
	release(t, k)
}

// TestHolderStopped: a holder that is frozen finds out, when it goes on, that
// it has lost the lock before it touches anything.
func TestHolderStopped(t *testing.T) {
	srv := testbed.SharedRedis(t)
	name := newName()
	p := child(t, "hold", srv.URL(), name)
	p.WaitLine("held")
	l := process(t, srv.URL())
	got := acquiring(t, l, name)
	await(t, l, name, 2)
	p.Pause()
	k, took := within(t, got, 2200*time.Millisecond+load)
	t.Logf("SIGSTOP to grant: %v", took)
	p.Resume()
	if end := p.WaitLine("ended "); !strings.Contains(end, "lost") {
		t.Errorf("the holder ended with %q", end)
	}
	if err := k.Err(); err != nil {
		t.Error(err)
	}
	release(t, k)
}

// waitersAhead queues n children and then a waiter of this process, behind a
// holder of this process.
func waitersAhead(t *testing.T, url, name string, n int) (*locker.Lock, []*testbed.Process, <-chan *locker.Lock) {
	t.Helper()
	l := process(t, url)
	k := take(t, l, name)
	var list []*testbed.Process
	for range n {
		p := child(t, "wait", url, name)
		p.WaitLine("waiting")
		list = append(list, p)
	}
	got := acquiring(t, l, name)
	await(t, l, name, n+2)
	return k, list, got
}

// TestWaitersKilled: five dead processes ahead delay the line by a grace, not
// by five; in a Cluster, where nobody knows who listens, by one liveness.
func TestWaitersKilled(t *testing.T) {
	srv := testbed.SharedRedis(t)
	name := newName()
	k, list, got := waitersAhead(t, srv.URL(), name, 5)
	for _, p := range list {
		p.Kill()
	}
	release(t, k)
	next, took := within(t, got, 700*time.Millisecond+load)
	t.Logf("5 killed waiters delayed the line by %v", took)
	release(t, next)
}

// TestWaitersStopped: five frozen processes ahead, whose connections stand,
// delay the line by one liveness in all.
func TestWaitersStopped(t *testing.T) {
	srv := testbed.SharedRedis(t)
	name := newName()
	k, list, got := waitersAhead(t, srv.URL(), name, 5)
	for _, p := range list {
		p.Pause()
	}
	release(t, k)
	next, took := within(t, got, 3200*time.Millisecond+load)
	t.Logf("5 frozen waiters delayed the line by %v", took)
	release(t, next)
}

// TestDeadLineVanishes: when all who knew of a line are dead, nothing of it
// stays, though nobody asks for the name ever again.
func TestDeadLineVanishes(t *testing.T) {
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	name := newName()
	list := []*testbed.Process{child(t, "hold", srv.URL(), name)}
	list[0].WaitLine("held")
	for range 2 {
		p := child(t, "wait", srv.URL(), name)
		p.WaitLine("waiting")
		list = append(list, p)
	}
	for _, p := range list {
		p.Kill()
	}
	until(t, func() error {
		n, err := countKeys(context.Background(), c, redis.DefaultPrefix)
		if n != 0 {
			return fmt.Errorf("%d keys, %w", n, err)
		}
		return err
	})
}

// TestNothingStays: after hundreds of names the store holds the last token.
func TestNothingStays(t *testing.T) {
	srv := testbed.Redis(t)
	l := process(t, srv.URL())
	for range 100 {
		name := newName()
		k := take(t, l, name)
		got := acquiring(t, l, name)
		await(t, l, name, 2)
		release(t, k)
		k, _ = within(t, got, time.Second)
		release(t, k)
		release(t, take(t, l, name, locker.Limit(2)))
	}
	keys, err := dial(t, srv.Addr()).Keys(t.Context(), "*").Result()
	if err != nil || len(keys) != 1 || keys[0] != "locker:fence" {
		t.Errorf("the server holds %q, %v", keys, err)
	}
}

// calls counts the scripts that a server has run.
func calls(t *testing.T, c *goredis.Client) (n int) {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"evalsha", "eval"} {
		var some int
		_, _ = fmt.Sscanf(info["Commandstats"]["cmdstat_"+verb], "calls=%d", &some)
		n += some
	}
	return n
}

// TestCommands: without contention a cycle is two requests; with 256 waiters of
// eight processes a grant is three.
func TestCommands(t *testing.T) {
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	var ls []*locker.Client
	for range 8 {
		l := process(t, srv.URL())
		release(t, take(t, l, newName())) // scripts loaded
		ls = append(ls, l)
	}
	c.ConfigResetStat(t.Context())
	for range 100 {
		release(t, take(t, ls[0], "free"))
	}
	if n := calls(t, c); n != 200 {
		t.Errorf("100 cycles without contention took %d requests", n)
	}

	const waiters = 256
	k := take(t, ls[0], "busy")
	done := make(chan error, waiters)
	for i := range waiters {
		go func() {
			k, err := ls[i%len(ls)].Acquire(t.Context(), "busy")
			if err == nil {
				err = k.Release(t.Context())
			}
			done <- err
		}()
	}
	await(t, ls[0], "busy", waiters+1)
	c.ConfigResetStat(t.Context())
	begun := time.Now()
	release(t, k)
	for range waiters {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begun)
	n := calls(t, c)
	t.Logf("%d grants in %v took %d requests after joining", waiters, took, n)
	// Each was granted, confirmed and released; heartbeats are by time.
	if beats := 8 * (1 + int(took/time.Second)); n > 2*waiters+1+beats {
		t.Errorf("%d grants took %d requests after joining, want 2 each", waiters, n)
	}
}

// TestScriptFlush: a server that has forgotten the scripts gets them again.
func TestScriptFlush(t *testing.T) {
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	l := process(t, srv.URL())
	name := newName()
	for range 3 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		k := take(t, l, name)
		got := acquiring(t, l, name)
		await(t, l, name, 2)
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		release(t, k)
		k, _ = within(t, got, time.Second)
		release(t, k)
	}
}

// TestClientKill: connections that the server closes, the subscription's too,
// cost neither the place in line nor the grant.
func TestClientKill(t *testing.T) {
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	holder, waiter := process(t, srv.URL()), process(t, srv.URL(), noRejoin(t))
	name := newName()
	k := take(t, holder, name)
	got := acquiring(t, waiter, name)
	await(t, holder, name, 2)
	for _, kind := range []string{"normal", "pubsub"} {
		if err := c.ClientKillByFilter(t.Context(), "TYPE", kind).Err(); err != nil && kind != "normal" {
			t.Fatal(err)
		}
	}
	release(t, k) // perhaps before the waiter listens again
	k, took := within(t, got, time.Second)
	t.Logf("granted after %v", took)
	release(t, k)
}

// noRejoin fails the test when a waiter loses its place.
func noRejoin(t *testing.T) locker.ClientOption {
	return locker.WithObserver(func(e locker.Event) {
		if e.Kind == locker.EventRejoined {
			t.Errorf("%s: a waiter has lost its place: %v", e.Name, e.Err)
		}
	})
}

// TestServerEmptied: a server that comes back without anything has lost the
// holder and the line; the waiter joins again and tokens go on growing.
func TestServerEmptied(t *testing.T) {
	srv := testbed.Redis(t, testbed.Faults())
	holder, waiter := process(t, srv.URL()), process(t, srv.URL())
	name := newName()
	k := take(t, holder, name, locker.WithTTL(3*time.Second))
	got := acquiring(t, waiter, name)
	await(t, holder, name, 2)
	srv.Kill()
	srv.Start()
	next, took := within(t, got, 5*time.Second)
	t.Logf("granted %v after the restart", took)
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	<-k.Done()
	if err := k.Release(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("release of what the server lost: %v", err)
	}
	release(t, next)
}

// TestKeyDeleted: an operator deletes the holder's key; the line moves on
// within a heartbeat, and the holder finds out at its next renewal.
func TestKeyDeleted(t *testing.T) {
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	d, _ := redis.New(c)
	for _, opts := range [][]locker.Option{nil, {locker.Shared()}} {
		holder, waiter := process(t, srv.URL()), process(t, srv.URL())
		name := newName()
		k := take(t, holder, name, append(opts, locker.WithTTL(3*time.Second))...)
		got := acquiring(t, waiter, name)
		await(t, holder, name, 2)
		if err := c.Del(t.Context(), d.Key(name)).Err(); err != nil {
			t.Fatal(err)
		}
		next, took := within(t, got, time.Second+load)
		t.Logf("granted %v after the deletion", took)
		select {
		case <-k.Done():
		case <-time.After(2 * time.Second):
			t.Error("the holder does not know")
		}
		release(t, next)
	}
}

// TestShortLeaseAfterWait: the claim of a waiter that is granted lasts longer
// than a short lease; the lease does not.
func TestShortLeaseAfterWait(t *testing.T) {
	srv := testbed.SharedRedis(t)
	for _, shared := range []bool{false, true} {
		d, err := open(t.Context(), srv.URL(), redis.DefaultPrefix)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		r := driver.Request{Name: newName(), ID: "short-1", Shared: shared, TTL: 300 * time.Millisecond, Wait: true}
		holder := driver.Request{Name: r.Name, ID: "holder-1", TTL: time.Minute}
		if _, err := d.Acquire(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		r.Joined = func() { got <- d.Release(t.Context(), holder.Hold(0)) }
		if _, err := d.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		line, err := d.Inspect(t.Context(), r.Name)
		if err != nil || len(line) != 1 || line[0].Remaining > r.TTL {
			t.Errorf("the line is %+v, %v; want a lease of %v", line, err, r.TTL)
		}
		left, err := dial(t, srv.Addr()).PTTL(t.Context(), d.(*redis.Driver).Key(r.Name)).Result()
		if err != nil || left > r.TTL {
			t.Errorf("the key lives for %v, %v; want %v", left, err, r.TTL)
		}
	}
}

// TestLeaseEnd: the first waiter's process looks when the lease ends, not at
// its next heartbeat.
func TestLeaseEnd(t *testing.T) {
	srv := testbed.SharedRedis(t)
	d, err := open(t.Context(), srv.URL(), redis.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, shared := range []bool{false, true} {
		// Heartbeats are a second apart: the next one after the end is far.
		dead := driver.Request{Name: newName(), ID: "dead-1", Shared: shared, TTL: 1200 * time.Millisecond}
		begun := time.Now()
		if _, err := d.Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		r := driver.Request{Name: dead.Name, ID: "next-1", TTL: time.Minute, Wait: true}
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(begun)
		t.Logf("a lease of %v ended after %v", dead.TTL, took)
		if took < dead.TTL || took > dead.TTL+200*time.Millisecond+load {
			t.Errorf("a lease of %v ended after %v", dead.TTL, took)
		}
		if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBreak: the holder is told at once, though it has never waited.
func TestBreak(t *testing.T) {
	srv := testbed.SharedRedis(t)
	for _, opts := range [][]locker.Option{nil, {locker.Shared()}} {
		holder, other := process(t, srv.URL()), process(t, srv.URL())
		name := newName()
		k := take(t, holder, name, opts...)
		got := acquiring(t, other, name)
		await(t, other, name, 2)
		if err := other.Break(t.Context(), name, k.Token()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-k.Done():
		case <-time.After(time.Second):
			t.Error("the holder has not been told")
		}
		next, _ := within(t, got, time.Second)
		if err := other.Break(t.Context(), name, k.Token()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("break of what is broken: %v", err)
		}
		release(t, next)
	}
}

// TestRetriedRelease: go-redis sends a release again whose answer was lost. It
// is then not there, and that is no loss.
func TestRetriedRelease(t *testing.T) {
	srv := testbed.SharedRedis(t)
	p := srv.Proxy(t)
	d, err := open(t.Context(), p.URL(), "retried")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := driver.Request{Name: newName(), ID: "retried-1", TTL: 10 * time.Second}
	if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release of nothing: %v", err) // and the server knows the script now
	}
	if _, err := d.Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	lost := p.LoseReply(r.ID)
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Errorf("release whose first answer was lost: %v", err)
	}
	select {
	case <-lost:
	default:
		t.Error("no answer was lost")
	}
	if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a second release: %v", err)
	}
}

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

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
	l, err := locker.Open(context.Background(), os.Getenv("URL"), locker.WithObserver(func(_ context.Context, e locker.Event) {
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

// manyWaiters is how many Acquires childWaitsOften has.
const manyWaiters = 200

// childWaitsOften waits for LOCK with many goroutines.
func childWaitsOften() {
	l, err := locker.Open(context.Background(), os.Getenv("URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range manyWaiters {
		go func() { _, _ = l.Acquire(context.Background(), os.Getenv("LOCK")) }()
	}
	fmt.Println("waiting")
	select {}
}

func child(t *testing.T, what, url, name string) *testbed.Process {
	t.Helper()
	return testbed.Child(t, what, "URL="+url, "LOCK="+name)
}

// TestHolderKilled: from SIGKILL to the next grant it takes what is left of
// the lease, and 0.2 s at most.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	name := newName()
	p := child(t, "hold", srv.URL(), name)
	p.WaitLine("held")
	l := process(t, srv.URL())
	got := acquiring(t, l, name)
	await(t, l, name, 2)
	c := dial(t, srv.Addr())
	d, _ := redis.New(c)
	time.Sleep(1200 * time.Millisecond) // past a renewal, so that what the waiter learned first is old
	p.Kill()
	left, err := c.PTTL(t.Context(), d.Key(name)).Result()
	if err != nil {
		t.Fatal(err)
	}
	k, took := within(t, got, left+200*time.Millisecond+load)
	t.Logf("SIGKILL to grant: %v, of which %v was left of the lease", took, left)
	release(t, k)
}

// TestHolderStopped: a holder that was frozen learns, when it goes on and
// before it touches anything, that it has lost the lock.
func TestHolderStopped(t *testing.T) {
	t.Parallel()
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

// TestWaitersKilled: five dead processes ahead delay the queue by one liveness in all.
func TestWaitersKilled(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	name := newName()
	k, list, got := waitersAhead(t, srv.URL(), name, 5)
	for _, p := range list {
		p.Kill()
	}
	release(t, k)
	next, took := within(t, got, 3200*time.Millisecond+load)
	t.Logf("5 killed waiters delayed the queue by %v", took)
	release(t, next)
}

// TestWaitersStopped: five frozen processes ahead, whose connections are
// intact, delay the queue by one liveness in all.
func TestWaitersStopped(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	name := newName()
	k, list, got := waitersAhead(t, srv.URL(), name, 5)
	for _, p := range list {
		p.Pause()
	}
	release(t, k)
	next, took := within(t, got, 3200*time.Millisecond+load)
	t.Logf("5 frozen waiters delayed the queue by %v", took)
	release(t, next)
}

// TestDeadQueueVanishes: when all processes that knew of a queue are dead,
// nothing of it stays, even if nobody uses the name again.
func TestDeadQueueVanishes(t *testing.T) {
	t.Parallel()
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

// TestStalledProcess: a process that was stopped for longer than the liveness
// interval, with its connections intact, finds out about all its waiters at
// once, not about a few with each heartbeat.
func TestStalledProcess(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	name := newName()
	l := process(t, srv.URL())
	k := take(t, l, name)
	p := child(t, "waitoften", srv.URL(), name)
	await(t, l, name, 1+manyWaiters)
	got := acquiring(t, l, name)
	await(t, l, name, 2+manyWaiters)
	p.Pause()
	release(t, k)
	next, _ := within(t, got, 3200*time.Millisecond+load)
	await(t, l, name, 1)
	p.Resume()
	took := testbed.Elapsed(func() { await(t, l, name, 1+manyWaiters) })
	t.Logf("%d waiters are queued again after %v", manyWaiters, took)
	if took > 2*time.Second {
		t.Errorf("%d waiters are queued again after %v", manyWaiters, took)
	}
	release(t, next)
}

// TestLapsedWaiterStaysGone: a process sends no heartbeat until Inspect does
// not show its waiter any more. The waiter does not come back to its place when
// the process sends a heartbeat or queues for the name again.
func TestLapsedWaiterStaysGone(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	for _, how := range []string{"heartbeat", "queues again"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			lapsedWaiter(t, srv, how == "queues again")
		})
	}
}

func lapsedWaiter(t *testing.T, srv *testbed.Server, again bool) {
	t.Helper()
	p := srv.Proxy(t)
	d, other := openAt(t, p.URL()), openAt(t, srv.URL())
	holder := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	wait := func() {
		r := driver.Request{Name: holder.Name, ID: newName(), TTL: time.Minute, Wait: true}
		joined := make(chan struct{})
		r.Joined = func() { close(joined) }
		go func() { _, err := d.Acquire(t.Context(), r); ended <- err }()
		<-joined
	}
	wait()
	first, err := other.Inspect(t.Context(), holder.Name)
	if err != nil || len(first) != 2 {
		t.Fatal(first, err)
	}
	p.Cut()
	until(t, func() error {
		if q, err := other.Inspect(t.Context(), holder.Name); err != nil || len(q) != 1 {
			return fmt.Errorf("%d tickets, %w", len(q), err)
		}
		return nil
	})
	p.Heal()
	if again {
		wait()
	}
	select {
	case err := <-ended:
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("the lapsed waiter: %v", err)
		}
	case <-time.After(3 * time.Second):
		t.Error("the lapsed waiter got no answer")
	}
	q, err := other.Inspect(t.Context(), holder.Name)
	for _, ticket := range q {
		if ticket.ID == first[1].ID {
			t.Errorf("the lapsed waiter is back in the queue: %+v, %v", q, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	_ = other.Release(t.Context(), holder.Hold(0))
}

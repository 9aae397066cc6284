package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// heap returns the memory in use after a collection.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestManyHeld holds ten thousand locks in one Locker: they take few goroutines and
// little memory, and one request renews all of them.
func TestManyHeld(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const n = 10_000
	srv := quietServer(t)
	ctx := ctxFor(t, 3*time.Minute)
	c := client(t, srv.URL()+"?session=10m")
	k := must[*locker.Lock](t)(c.Acquire(ctx, "first"))
	heap0, routines := heap(), runtime.NumGoroutine()
	locks := make([]*locker.Lock, n)
	each(t, n, func(i int) (err error) {
		locks[i], err = c.Acquire(ctx, fmt.Sprint("lock-", i), locker.WithTTL(3*time.Minute))
		return err
	})
	for mntr(t, srv)["watch_count"] < n {
		sleep(ctx, t)
	}
	settle(t, srv)
	perLock := (heap() - heap0) / n
	more := runtime.NumGoroutine() - routines
	t.Logf("%d B a lock, %d goroutines more than for one lock", perLock, more)
	if more > 1 {
		t.Errorf("%d goroutines more for %d locks", more, n)
	}
	if perLock > 2048 {
		t.Errorf("%d B of heap a lock", perLock)
	}
	got := counted(t, srv, func() {
		if err := locks[0].Extend(ctx, 4*time.Minute); err != nil {
			t.Fatal(err)
		}
	})
	if r := got["packets_received"]; r > 3 {
		t.Errorf("%d requests for a renewal", r)
	}
	each(t, n, func(i int) error { return locks[i].Release(ctx) })
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	conn := connect(t, srv.Addr())
	if left, err := count(conn, "/locker"); err != nil || left != 0 {
		t.Errorf("%d nodes are left (error %v)", left, err)
	}
}

// TestManyWaiting makes thousands wait for one name in one process.
func TestManyWaiting(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how waiters watch the queue")
	const n = 5_000
	srv := quietServer(t)
	const patience = 3 * time.Minute
	ctx, cancel := context.WithCancel(ctxFor(t, patience))
	// On a busy machine the last of thousands of requests at once get their answers
	// later than a Client's default bound. So do renewals, and an Inspect, which sends
	// a request for each ticket.
	c := locker.New(open(t, srv.URL()+"?session=10m"), locker.WithAnswerTimeout(patience), locker.WithDefaults(locker.WithTTL(patience)))
	t.Cleanup(func() { _ = c.Close() })
	held := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	heap0 := heap()
	begun := time.Now()
	var group sync.WaitGroup
	granted := make(chan *locker.Lock, n)
	for range n {
		group.Go(func() {
			switch k, err := c.Acquire(ctx, "x"); {
			case err == nil:
				granted <- k
			case !errors.Is(err, context.Canceled):
				t.Error(err)
			}
		})
	}
	for mntr(t, srv)["ephemerals_count"] < n+1 {
		sleep(ctx, t)
	}
	settle(t, srv)
	if queue, err := c.Inspect(ctx, "x"); err != nil || len(queue.Tickets) != n+1 {
		t.Fatalf("the queue has %d tickets (error %v), want %d", len(queue.Tickets), err, n+1)
	}
	t.Logf("%d waiters after %v, %d B each", n, time.Since(begun).Round(time.Millisecond), (heap()-heap0)/n)
	const releases = 50
	begun = time.Now()
	for range releases {
		if err := held.Release(ctx); err != nil {
			t.Fatal(err)
		}
		held = <-granted
	}
	t.Logf("a hand-off takes %v", (time.Since(begun) / releases).Round(time.Microsecond))
	begun = time.Now()
	cancel()
	group.Wait()
	t.Logf("all have left after %v", time.Since(begun).Round(time.Millisecond))
	_ = held.Release(context.Background())
	select {
	case k := <-granted:
		_ = k.Release(context.Background())
	default:
	}
	queueOf(t, c, "x", 0)
}

// sleep is for loops that wait for the server: it fails the test when ctx has ended.
func sleep(ctx context.Context, t testing.TB) {
	t.Helper()
	select {
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
}

// each runs f(0) … f(n-1), many at once.
func each(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	var group sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

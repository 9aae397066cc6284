package redis_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) {
	testbed.RegisterChild("hold", childHolds)
	testbed.RegisterChild("wait", childWaits)
	testbed.RegisterChild("waitoften", childWaitsOften)
	testbed.RegisterChild("log", childLogs)
	testmain.Run(m)
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

// lasting returns the keys of a pattern, but for tombstones, which it counts: a release
// leaves one, for five seconds, if a request for the ticket was not answered within 30 ms,
// as on a busy machine.
func lasting(t *testing.T, c *goredis.Client, pattern string) (keys []string, tombstones int) {
	t.Helper()
	all, err := c.Keys(t.Context(), pattern).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range all {
		left, err := c.PTTL(t.Context(), key).Result() // negative if it is for ever, or gone
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(key, ":d") && left != -1 && left <= 5*time.Second {
			tombstones++
			continue
		}
		keys = append(keys, key)
	}
	return keys, tombstones
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

// waiting is process, with a channel that gets a value when an Acquire of the Locker
// knows that its ticket is queued. The store shows the ticket a little earlier, and an
// outage ends an Acquire that does not know yet.
func waiting(t *testing.T, url string) (l *locker.Client, queued <-chan struct{}) {
	t.Helper()
	events := make(chan struct{}, 1)
	return process(t, url, locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			events <- struct{}{}
		}
	})), events
}

// take acquires a lock that is granted soon.
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

// await waits until n tickets are queued.
func await(t *testing.T, l *locker.Client, name string, n int) {
	t.Helper()
	until(t, func() error {
		queue, err := l.Inspect(t.Context(), name)
		if err != nil || len(queue.Tickets) != n {
			return fmt.Errorf("%d tickets, %w; want %d", len(queue.Tickets), err, n)
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

// within fails unless got comes in time, not counting the time in which the
// machine ran other processes. It returns how long it took.
func within(t *testing.T, got <-chan *locker.Lock, bound time.Duration) (*locker.Lock, time.Duration) {
	t.Helper()
	begun := time.Now()
	var k *locker.Lock
	measured := testbed.Elapsed(func() {
		select {
		case k = <-got:
		case <-time.After(bound + 20*time.Second):
			t.Fatalf("not granted within %v", bound+20*time.Second)
		}
	})
	took := time.Since(begun)
	if k == nil {
		t.FailNow()
	}
	if measured > bound {
		t.Errorf("granted after %v, want %v at most", measured, bound)
	}
	return k, took
}

// soon fails unless done is closed within the bound, not counting the time in
// which the machine ran other processes.
func soon(t *testing.T, done <-chan struct{}, bound time.Duration, what string) {
	t.Helper()
	took := testbed.Elapsed(func() {
		select {
		case <-done:
		case <-time.After(bound + 20*time.Second):
		}
	})
	if took > bound {
		t.Errorf("%s: not within %v", what, bound)
	}
}

// load is what a busy machine may add to a bound.
const load = 300 * time.Millisecond

package redis_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestMemoryIsShort: where the server refuses what needs more memory (maxmemory, and
// noeviction), what is queued is still granted, and what is granted is renewed and released.
func TestMemoryIsShort(t *testing.T) {
	notShort(t)
	t.Parallel()
	for _, kind := range [][]locker.Option{nil, {locker.WithMinHold(time.Second)}, {locker.Limit(1)}} {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			srv := testbed.Redis(t)
			l, other := process(t, srv.URL()), process(t, srv.URL())
			name := newName()
			k := take(t, l, name, locker.WithTTL(4*time.Second))
			var waiters []<-chan *locker.Lock
			for _, process := range []*locker.Client{other, l} {
				waiters = append(waiters, acquiring(t, process, name, append(kind, locker.WithTTL(4*time.Second))...))
			}
			await(t, l, name, 3)
			c := dial(t, srv.Addr())
			if err := c.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(4500 * time.Millisecond) // longer than a lease, and than a process without heartbeats counts as alive
			if err := k.Err(); err != nil {
				t.Fatalf("the holder: %v", err)
			}
			if _, err := l.TryAcquire(t.Context(), newName()); !errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("a new ticket: %v", err)
			}
			release(t, k)
			for n := range waiters {
				k := next(t, waiters)
				if n == 0 {
					time.Sleep(4500 * time.Millisecond)
				}
				if err := k.Err(); err != nil {
					t.Fatalf("waiter %d: %v", n, err)
				}
				release(t, k)
			}
		})
	}
}

// next returns the lock that is granted next.
func next(t *testing.T, all []<-chan *locker.Lock) *locker.Lock {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 20*time.Second; time.Sleep(time.Millisecond) {
		for _, got := range all {
			select {
			case k := <-got:
				if k == nil {
					t.FailNow()
				}
				return k
			default:
			}
		}
	}
	t.Fatal("nobody is granted")
	return nil
}

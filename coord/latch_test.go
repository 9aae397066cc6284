package coord_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/coord"
	"github.com/lockerproject/locker/internal/memorytest"
	"github.com/lockerproject/locker/internal/testbed"
)

func latch(t *testing.T, l locker.Locker, n int, keep time.Duration) *coord.Latch {
	t.Helper()
	a, err := coord.NewLatch(l, "latch", n, keep)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// countDown counts down in a process of its own, which ends at once.
func countDown(t *testing.T, b *memorytest.Bed, party string) {
	t.Helper()
	l, _ := b.Join()
	if err := latch(t, l, 3, time.Hour).CountDown(t.Context(), party); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// All waiters pass soon after the last party, and none before, however often a party
// counts down, and although the processes of the parties have ended.
func TestLatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		begun := time.Now()
		var group sync.WaitGroup
		for range 10 {
			l, _ := b.Join()
			group.Go(func() {
				if err := latch(t, l, 3, time.Hour).Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if d := time.Since(begun); d < 30*time.Second || d > 30*time.Second+250*time.Millisecond {
					t.Errorf("let pass after %v", d)
				}
			})
		}
		time.Sleep(10 * time.Second)
		for _, party := range []string{"a", "b", "a", "b"} {
			countDown(t, b, party)
		}
		if missing, err := latch(t, newLocker(b), 3, time.Hour).Missing(t.Context()); err != nil || missing != 1 {
			t.Errorf("missing: %d, %v", missing, err)
		}
		b.Inspects.Store(0)
		time.Sleep(20 * time.Second)
		// One of ten polls four times a second, the others every two seconds.
		if n := b.Inspects.Load(); n > 20*(4+5+1) {
			t.Errorf("%d requests in twenty seconds", n)
		}
		countDown(t, b, "c")
		group.Wait()
		if err := latch(t, newLocker(b), 3, time.Hour).Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func newLocker(b *memorytest.Bed) *locker.Client {
	l, _ := b.Join()
	return l
}

// Count-downs end after the time they are kept, not before.
func TestLatchKeeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		for _, party := range []string{"a", "b", "c"} {
			countDown(t, b, party)
		}
		a := latch(t, newLocker(b), 3, time.Hour)
		time.Sleep(time.Hour - time.Millisecond)
		if missing, err := a.Missing(t.Context()); err != nil || missing != 0 {
			t.Errorf("missing: %d, %v", missing, err)
		}
		time.Sleep(time.Second)
		if missing, err := a.Missing(t.Context()); err != nil || missing != 3 {
			t.Errorf("missing: %d, %v", missing, err)
		}
	})
}

// Neither an outage nor the death of the party that polls keeps the others back.
func TestLatchSurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		polls, dead := b.Join()
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if err := latch(t, polls, 3, time.Hour).Wait(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("the dead one: %v", err)
			}
		})
		synctest.Wait()
		l, s := b.Join()
		var passed time.Time
		group.Go(func() {
			if err := latch(t, l, 3, time.Hour).Wait(t.Context()); err != nil {
				t.Error(err)
			}
			passed = time.Now()
		})
		s.Away.Store(true)
		time.Sleep(20 * time.Second)
		s.Away.Store(false)
		time.Sleep(10 * time.Second)
		dead.Away.Store(true)
		for _, party := range []string{"a", "b", "c"} {
			countDown(t, b, party)
		}
		begun := time.Now()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if d := passed.Sub(begun); d < 0 || d > 2*time.Second {
			t.Errorf("let pass after %v", d)
		}
		cancel()
		group.Wait()
	})
}

func TestBadInput(t *testing.T) {
	l, s := memorytest.New(t).Join()
	s.Away.Store(true)
	long := strings.Repeat("x", 508)
	for i, c := range []struct {
		l    locker.Locker
		name string
		n    int
		d    time.Duration
		want error
	}{
		{l, long[:507], 1, time.Second, nil},
		{l, long, 1, time.Second, locker.ErrInvalidName},
		{l, "", 1, time.Second, locker.ErrInvalidName},
		{nil, "a", 1, time.Second, locker.ErrInvalidOption},
		{l, "a", 0, time.Second, locker.ErrInvalidOption},
		{l, "a", 1, 30, locker.ErrInvalidOption},
	} {
		if _, err := coord.NewLatch(c.l, c.name, c.n, c.d); !errors.Is(err, c.want) {
			t.Errorf("latch %d: %v", i, err)
		}
		if _, err := coord.NewBarrier(c.l, c.name, c.n, c.d); !errors.Is(err, c.want) {
			t.Errorf("barrier %d: %v", i, err)
		}
	}
	if err := latch(t, l, 1, time.Second).CountDown(t.Context(), ""); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("a party without a name: %v", err)
	}
	if err := latch(t, l, 1, time.Second).CountDown(t.Context(), "a"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("in an outage: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := latch(t, l, 1, time.Second).Wait(t.Context()); !errors.Is(err, locker.ErrClosed) {
		t.Errorf("on a closed Locker: %v", err)
	}
}

// On real stores: a process counts down and exits, another one is killed before it
// counts.
func TestLatchOnStores(t *testing.T) {
	for store, server := range stores {
		t.Run(store, func(t *testing.T) {
			url, name := server(t).URL(), newName()
			a, err := coord.NewLatch(open(t, url), name, 2, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			opened := make(chan error, 1)
			go func() { opened <- a.Wait(t.Context()) }()
			party(t, url, name, "count down", "a").WaitLine("done")
			party(t, url, name, "count down", "a").WaitLine("done")
			killed := party(t, url, name, "think", "b")
			killed.WaitLine("thinks")
			killed.Kill()
			if missing, err := a.Missing(t.Context()); err != nil || missing != 1 {
				t.Errorf("missing: %d, %v", missing, err)
			}
			party(t, url, name, "count down", "b").WaitLine("done")
			took := testbed.Elapsed(func() { err = <-opened })
			if err != nil || took > time.Second {
				t.Errorf("open %v after the last party: %v", took, err)
			}
		})
	}
}

// Wait, polling or not, returns ErrClosed when its Locker is closed: its own context lives.
func TestCloseEndsTheWait(t *testing.T) {
	for _, party := range []string{"polls", "waits for the one that polls"} {
		t.Run(party, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memorytest.New(t)
				if party != "polls" {
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					other := latch(t, newLocker(b), 1, time.Hour)
					go func() { _ = other.Wait(ctx) }()
					synctest.Wait()
				}
				l := newLocker(b)
				ended := make(chan error, 1)
				go func() { ended <- latch(t, l, 1, time.Hour).Wait(t.Context()) }()
				time.Sleep(time.Second)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if err := <-ended; !errors.Is(err, locker.ErrClosed) || errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}

package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/coord"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/memorytest"
	"github.com/lockerproject/locker/internal/testbed"
)

// oncePeriod is the period of the parties that run something once.
const oncePeriod = 3 * time.Second

// childParty does one thing in a process of its own.
func childParty() {
	ctx := context.Background()
	l, err := locker.Open(ctx, os.Getenv("URL"))
	if err == nil {
		err = act(ctx, l, os.Getenv("NAME"), os.Getenv("WHAT"), os.Getenv("PARTY"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("done")
}

func act(ctx context.Context, l locker.Locker, name, what, who string) error {
	switch what {
	case "count down":
		a, err := coord.NewLatch(l, name, 2, time.Minute)
		if err != nil {
			return err
		}
		return a.CountDown(ctx, who) // and exits without Close
	case "wait":
		b, err := coord.NewBarrier(l, name, 3, 2*time.Second)
		if err != nil {
			return err
		}
		return b.Wait(ctx)
	case "once":
		ran, err := coord.Once(ctx, l, name, oncePeriod, func(context.Context) error { return nil })
		fmt.Println("ran", ran)
		return err
	default:
		fmt.Println("thinks")
		select {}
	}
}

func party(t *testing.T, url, name, what, who string) *testbed.Process {
	t.Helper()
	return testbed.Child(t, "party", "URL="+url, "NAME="+name, "WHAT="+what, "PARTY="+who)
}

func barrier(t *testing.T, l locker.Locker, name string, n int) *coord.Barrier {
	t.Helper()
	b, err := coord.NewBarrier(l, name, n, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rounds has a party wait again and again: nobody passes before all have come.
func rounds(ctx context.Context, t *testing.T, b *coord.Barrier, arrived []atomic.Int64, n int, work func()) {
	for round := range arrived {
		work()
		arrived[round].Add(1)
		if err := b.Wait(ctx); err != nil {
			t.Error(err)
			return
		}
		if got := arrived[round].Load(); got != int64(n) {
			t.Errorf("passed in round %d when %d of %d had come", round, got, n)
		}
	}
}

func TestBarrierCycles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		bed := memorytest.New(t)
		arrived := make([]atomic.Int64, 30)
		var group sync.WaitGroup
		for i := range n {
			b := barrier(t, newLocker(bed), "b", n)
			group.Go(func() {
				rounds(t.Context(), t, b, arrived, n, func() { time.Sleep(time.Duration(i*i) * 37 * time.Millisecond) })
			})
		}
		group.Wait()
	})
}

// A trip is kept for as long as can be said if twice the length of the leases cannot.
func TestBarrierOfEndlessLeases(t *testing.T) {
	for _, ttl := range []time.Duration{math.MaxInt64 / 2, math.MaxInt64/2 + 1, math.MaxInt64} {
		synctest.Test(t, func(t *testing.T) {
			bed := memorytest.New(t)
			var group sync.WaitGroup
			for i := range 2 {
				l := newLocker(bed)
				b, err := coord.NewBarrier(l, "b", 2, ttl)
				if err != nil {
					t.Fatal(err)
				}
				group.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := b.Wait(ctx); err != nil {
						t.Errorf("TTL %d, party %d: %v", ttl, i, err)
					}
				})
			}
			group.Wait()
			time.Sleep(time.Minute)
			if q, err := bed.Space.Inspect(t.Context(), "b#trip"); err != nil || len(q) == 0 {
				t.Errorf("TTL %d: the trip ended before the leases of the parties: %+v, %v", ttl, q, err)
			}
		})
	}
}

// slow is a store that takes long to get a request for a ticket.
type slow struct {
	*memory.Driver
	by time.Duration
}

func (s *slow) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	time.Sleep(s.by)
	return s.Driver.Acquire(ctx, r)
}

// On several stores, whose first is the authority, parties that overtake each other on the
// way to the second pass together.
func TestBarrierOnSeveralStores(t *testing.T) {
	for _, by := range []time.Duration{0, 50 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			stores := [2]*memory.Driver{memory.New(), memory.New()}
			var group sync.WaitGroup
			for i, by := range []time.Duration{100 * time.Millisecond, by} {
				l := locker.New(compose.All(stores[0].Join(), &slow{stores[1].Join(), by}).Authority(0))
				defer l.Close()
				group.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					time.Sleep(time.Duration(i) * 10 * time.Millisecond)
					if err := barrier(t, l, "b", 2).Wait(ctx); err != nil {
						t.Errorf("party %d: %v", i, err)
					}
				})
			}
			group.Wait()
		})
	}
}

// Twice as many parties as pass at a time: they pass in the order in which they came.
func TestBarrierOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := memorytest.New(t)
		var passed atomic.Int64
		var group sync.WaitGroup
		for i := range 7 {
			b := barrier(t, newLocker(bed), "b", 3)
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := b.Wait(ctx)
				if i == 6 {
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("the seventh of seven: %v", err)
					}
					return
				}
				if err != nil {
					t.Error(err)
				}
				passed.Add(1)
			})
			time.Sleep(time.Second)
			if want := int64((i + 1) / 3 * 3); passed.Load() != want {
				t.Errorf("%d of %d have passed, want %d", passed.Load(), i+1, want)
			}
		}
		group.Wait()
	})
}

// A party that lets others pass lets n pass, also when more wait.
func TestBarrierLetsNPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := memorytest.New(t)
		for range 3 { // as parties that have not polled yet
			if _, err := newLocker(bed).Acquire(t.Context(), "b", locker.Shared()); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := barrier(t, newLocker(bed), "b", 3).Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the fourth of four: %v", err)
		}
	})
}

// A party that gives up, and one that dies, do not count any more.
func TestBarrierWithoutTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := memorytest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if err := barrier(t, newLocker(bed), "b", 3).Wait(ctx); !errors.Is(err, context.Canceled) {
				t.Errorf("who gave up: %v", err)
			}
		})
		dying, s := bed.Join()
		group.Go(func() {
			if err := barrier(t, dying, "b", 3).Wait(t.Context()); !errors.Is(err, locker.ErrLost) {
				t.Errorf("who was cut off: %v", err)
			}
		})
		time.Sleep(time.Second)
		cancel()
		s.Away.Store(true)
		time.Sleep(15 * time.Second) // its lease has ended
		begun := time.Now()
		for range 2 {
			group.Go(func() {
				if err := barrier(t, newLocker(bed), "b", 3).Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if d := time.Since(begun); d < 5*time.Second {
					t.Errorf("passed after %v, before the third had come", d)
				}
			})
		}
		time.Sleep(5 * time.Second)
		s.Away.Store(false) // the party that was cut off notices it
		if err := barrier(t, newLocker(bed), "b", 3).Wait(t.Context()); err != nil {
			t.Error(err)
		}
		group.Wait()
	})
}

// If the party that lets the others pass dies meanwhile, or gets no answer, they pass
// all the same.
func TestBarrierTripSurvives(t *testing.T) {
	for _, how := range []string{"death", "no answer", "no answer, and gives up"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bed := memorytest.New(t)
				var group sync.WaitGroup
				for range 2 {
					b := barrier(t, newLocker(bed), "b", 3)
					group.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
						defer cancel()
						if err := b.Wait(ctx); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(time.Second)
				l, s := bed.Join()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if how != "death" {
					var trips atomic.Int64
					s.Lose = func(name string) bool { return strings.HasSuffix(name, "#trip") && trips.Add(1) <= 3 }
				}
				if how == "no answer, and gives up" {
					time.AfterFunc(10*time.Millisecond, cancel)
				}
				if err := barrier(t, l, "b", 3).Wait(ctx); err != nil {
					t.Error(err)
				}
				if how == "death" {
					s.Away.Store(true)
					_ = l.Close()
				}
				group.Wait()
			})
		})
	}
}

// The tickets of the trips are gone after a while.
func TestBarrierLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bed := memorytest.New(t)
		b := barrier(t, newLocker(bed), "b", 1)
		for range 10 {
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if names, err := bed.Space.List(t.Context()); err != nil || len(names) != 0 {
			t.Errorf("left: %q, %v", names, err)
		}
	})
}

func TestBarrierOnStores(t *testing.T) {
	for store, server := range stores {
		t.Run(store, func(t *testing.T) {
			const n = 3
			url, name := server(t).URL(), newName()
			arrived := make([]atomic.Int64, 5)
			var group sync.WaitGroup
			for range n {
				b := barrier(t, open(t, url), name, n)
				group.Go(func() { rounds(t.Context(), t, b, arrived, n, func() {}) })
			}
			group.Wait()

			name = newName()
			l := open(t, url)
			killed := party(t, url, name, "wait", "a")
			awaitTickets(t, l, name, 1)
			killed.Kill()
			awaitTickets(t, l, name, 0) // its lease has ended
			for _, who := range []string{"b", "c"} {
				defer party(t, url, name, "wait", who).WaitLine("done")
			}
			awaitTickets(t, l, name, 2)
			time.Sleep(500 * time.Millisecond)
			awaitTickets(t, l, name, 2)
			if err := barrier(t, l, name, n).Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOnceOnStores(t *testing.T) {
	for store, server := range stores {
		t.Run(store, func(t *testing.T) {
			url, name := server(t).URL(), newName()
			once := func() bool { return party(t, url, name, "once", "").WaitLine("ran ") == "true" }
			begun := time.Now()
			if !once() {
				t.Error("the first one has not run")
			}
			last := time.Now() // no run began later
			for time.Since(begun) < 2500*time.Millisecond {
				if !once() {
					continue
				}
				if last = time.Now(); last.Sub(begun) < oncePeriod { // else its process was slow to start
					t.Error("two runs within the period")
				}
			}
			time.Sleep(time.Until(last.Add(oncePeriod + time.Second)))
			if !once() {
				t.Error("no run after the period")
			}
		})
	}
}

// A store that is down when a party comes does not end its wait.
func TestBarrierBeginsInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := memorytest.New(t).Join()
		s.Away.Store(true)
		time.AfterFunc(20*time.Second, func() { s.Away.Store(false) })
		begun := time.Now()
		if err := barrier(t, l, "b", 1).Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(begun); d < 20*time.Second || d > 21*time.Second {
			t.Errorf("passed after %v", d)
		}
	})
}

// A party that gives up in an outage returns at once.
func TestBarrierGivesUpInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := memorytest.New(t).Join()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(59*time.Second, func() { s.Away.Store(true) })
		begun := time.Now()
		if err := barrier(t, l, "b", 2).Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if d := time.Since(begun); d > time.Minute+200*time.Millisecond {
			t.Errorf("returned %v after its context ended", d-time.Minute)
		}
	})
}

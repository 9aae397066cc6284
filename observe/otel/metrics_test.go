package lockerotel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/lockertest"
)

func acquire(t *testing.T, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(context.Background(), name, opts...)
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

func refused(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got the error %v, want %v", err, want)
	}
}

// A wait that ends because another observer panics is counted no more.
func TestWaitersAfterAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New(Observer(m.opts...), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				panic("observer")
			}
		}))
		defer l.Close()
		k := acquire(t, l, "a")
		func() {
			defer func() { _ = recover() }()
			_, err := l.Acquire(t.Context(), "a")
			t.Errorf("no panic, and the error %v", err)
		}()
		if n := m.values(t)["locker.waiter.count{}"]; n != "" {
			t.Errorf("%s waiters, want none", n)
		}
		release(t, k)
	})
}

// Waits and refusals are counted, with their times.
func TestMetricsOfContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New(Observer(m.opts...))
		defer l.Close()
		ctx := t.Context()
		k := acquire(t, l, "a")
		time.AfterFunc(4*time.Second, func() { release(t, k) })
		_, err := l.TryAcquire(ctx, "a")
		refused(t, err, locker.ErrNotAcquired)
		_, err = l.Acquire(ctx, "a", locker.WithWait(2*time.Second))
		refused(t, err, locker.ErrNotAcquired)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err = l.Acquire(short, "a")
		refused(t, err, context.DeadlineExceeded)
		go func() {
			time.Sleep(500 * time.Millisecond)
			compare(t, m.values(t), map[string]string{
				"locker.acquire.duration{locker.contended=false}":                        "1 × 0",
				"locker.acquire.duration{error.type=not_acquired,locker.contended=true}": "2 × 1",
				"locker.acquire.duration{error.type=timeout,locker.contended=true}":      "1 × 1",
				"locker.waiter.count{}": "1",
				"locker.holder.count{}": "1",
			})
		}()
		release(t, acquire(t, l, "a"))
		r1, r2 := acquire(t, l, "a", locker.Shared()), acquire(t, l, "a", locker.Limit(2))
		release(t, r1)
		release(t, r2)
		synctest.Wait() // the event of the first release comes after the next grant
		compare(t, m.values(t), map[string]string{
			"locker.acquire.duration{locker.contended=false}":                         "1 × 0",
			"locker.acquire.duration{locker.contended=true}":                          "1 × 1",
			"locker.acquire.duration{error.type=not_acquired,locker.contended=true}":  "2 × 1",
			"locker.acquire.duration{error.type=timeout,locker.contended=true}":       "1 × 1",
			"locker.acquire.duration{locker.contended=false,locker.lock.mode=shared}": "2 × 0",

			"locker.hold.duration{}":                        "2 × 2",
			"locker.hold.duration{locker.lock.mode=shared}": "2 × 0",
		})
	})
}

// Renewals, their failures, and both kinds of loss.
func TestMetricsOfLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New(Observer(m.opts...))
		defer l.Close()
		taken := acquire(t, l, "taken", locker.WithTTL(30*time.Second))
		time.Sleep(20500 * time.Millisecond) // two renewals
		l.Lose("taken")
		refused(t, taken.Err(), locker.ErrLost)
		lapsed := acquire(t, l, "lapsed", locker.WithTTL(3*time.Second))
		l.Down()
		<-lapsed.Done()
		synctest.Wait() // Done is closed before the event of the loss
		_, err := l.TryAcquire(t.Context(), "lapsed")
		refused(t, err, locker.ErrUnavailable)
		l.Heal()
		values := m.values(t)
		failed := "locker.renew.duration{error.type=unavailable}"
		if n := count(values[failed]); n < 5 {
			t.Errorf("%d failed renewals in 2 s: %v", n, values)
		}
		delete(values, failed)
		compare(t, values, map[string]string{
			"locker.acquire.duration{locker.contended=false}":                        "2 × 0",
			"locker.acquire.duration{error.type=unavailable,locker.contended=false}": "1 × 0",
			"locker.hold.duration{error.type=removed}":                               "1 × 20.5",
			"locker.hold.duration{error.type=expired}":                               "1 × 2.97",
			"locker.renew.duration{}":                                                "2 × 0",
			"locker.losses{error.type=removed}":                                      "1",
			"locker.losses{error.type=expired}":                                      "1",
		})
	})
}

func count(histogram string) (n int) {
	_, _ = fmt.Sscan(histogram, &n)
	return n
}

// A waiter that has lost its ticket in an outage is counted, and waits on.
func TestMetricsOfARejoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New()
		defer l.Close()
		other := l.Join(Observer(m.opts...))
		defer other.Close()
		k := acquire(t, l, "a")
		done := make(chan struct{})
		go func() {
			defer close(done)
			release(t, acquire(t, other, "a"))
		}()
		time.Sleep(time.Second)
		other.Down()
		time.Sleep(2 * lockertest.Liveness)
		other.Heal()
		time.Sleep(time.Second)
		values := m.values(t)
		if values["locker.rejoins{}"] != "1" || values["locker.waiter.count{}"] != "1" {
			t.Errorf("while it waits again: %v", values)
		}
		release(t, k)
		<-done
		compare(t, m.values(t), map[string]string{
			"locker.acquire.duration{locker.contended=true}": "1 × 12",
			"locker.hold.duration{}":                         "1 × 0",
			"locker.rejoins{}":                               "1",
		})
	})
}

// A re-entry that had to wait for another goroutine's acquisition ends what began.
func TestMetricsOfAReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New(Observer(m.opts...))
		defer l.Close()
		first := acquire(t, l, "a")
		var group sync.WaitGroup
		for _, opts := range [][]locker.Option{{locker.WithOwner("me")}, {locker.WithOwner("me"), locker.Shared()}} {
			group.Go(func() {
				k, err := l.Acquire(context.Background(), "a", opts...)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { release(t, k) }()
				release(t, acquire(t, l, "a", opts...)) // without a wait
				time.Sleep(time.Second)
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		release(t, first)
		group.Wait()
		compare(t, m.values(t), map[string]string{
			"locker.acquire.duration{locker.contended=false}":                        "1 × 0",
			"locker.acquire.duration{locker.contended=true}":                         "1 × 1",
			"locker.acquire.duration{locker.contended=true,locker.lock.mode=shared}": "1 × 1",
			"locker.hold.duration{}":                                                 "2 × 1",
		})
	})
}

// unconfirmed is a store that executes a release and does not confirm it.
type unconfirmed struct{ *memory.Driver }

func (d unconfirmed) Release(ctx context.Context, h driver.Hold) error {
	_ = d.Driver.Release(ctx, h)
	return driver.Unavailable(errors.New("no answer"))
}

func TestMetricsOfAnUnconfirmedRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := locker.New(unconfirmed{memory.New()}, Observer(m.opts...), locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		refused(t, acquire(t, l, "a").Release(t.Context()), locker.ErrUnavailable)
		if values := m.values(t); values["locker.hold.duration{error.type=unavailable}"] == "" {
			t.Errorf("%v", values)
		}
	})
}

func TestMetricsOfDegradedGrants(t *testing.T) {
	m := newTelemetry()
	primary := lockertest.New()
	defer primary.Close()
	d := compose.Fallback(away{memory.New()}, memory.New())
	l := locker.New(d, Observer(m.opts...))
	defer l.Close()
	release(t, acquire(t, l, "a"))
	if values := m.values(t); values["locker.degraded_grants{}"] != "1" {
		t.Errorf("%v", values)
	}
}

// away is a store that is down.
type away struct{ *memory.Driver }

func (away) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, driver.NoTicket(driver.Unavailable(errors.New("connection refused")))
}

// Events that should never happen have their series from the beginning: an alert needs a
// zero before the first loss.
func TestSeriesOfLossesAreThereFromTheBeginning(t *testing.T) {
	m := newTelemetry()
	l := locker.New(memory.New(), Observer(m.opts...))
	defer l.Close()
	found := map[string]int{}
	for _, metric := range m.collect(t) {
		found[metric.Name] = len(points(metric))
	}
	for name, n := range map[string]int{"locker.losses": 4, "locker.rejoins": 2, "locker.degraded_grants": 2} {
		if found[name] != n {
			t.Errorf("%s has %d series, want %d", name, found[name], n)
		}
	}
}

// Under contention, cancellation and losses nothing is left over.
func TestNothingIsLeftOver(t *testing.T) {
	m := newTelemetry()
	o := newObserver(m.opts)
	l := locker.New(memory.New(), o.attach)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
				if k, err := l.Acquire(ctx, "a"); err == nil {
					switch j % 3 {
					case 0:
						_ = l.Break(context.Background(), "a", k.Token())
					case 1:
						go func() { _ = k.Release(ctx) }()
					default:
						_ = k.Release(ctx)
					}
				}
				cancel()
			}
		})
	}
	group.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if len(o.waiting) != 0 || len(o.held) != 0 {
		t.Errorf("%d wait and %d are held after the end", len(o.waiting), len(o.held))
	}
	for name, value := range m.values(t) {
		if name == "locker.waiter.count{}" || name == "locker.holder.count{}" {
			t.Errorf("%s is %s after the end", name, value)
		}
	}
	if begun, ended := len(m.recorder.Started()), len(m.recorder.Ended()); begun != ended || begun == 0 {
		t.Errorf("%d spans began and %d ended", begun, ended)
	}
}

package compose_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// A request that arrives late, after a first removal of its ticket, is undone too.
func TestFallbackLooksAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memory.New(), memory.New()
		late := &late{Driver: a.Join()}
		f := compose.Fallback(late, b)
		l := locker.New(f)
		defer l.Close()
		defer a.Close()
		k := acquire(t, l)
		time.Sleep(5 * time.Second)
		if q, _ := a.Inspect(t.Context(), "x"); len(q) != 1 {
			t.Fatalf("the late request: %v", q)
		}
		time.Sleep(6 * time.Second)
		if q, _ := a.Inspect(t.Context(), "x"); len(q) != 0 {
			t.Errorf("left on the primary: %v", q)
		}
		release(t, k)
	})
}

// A ticket that is removed from the primary is not asked for there again, as All asks for a
// ticket that it has queued elsewhere: the removal would end a lock that is held.
func TestFallbackDoesNotReuseAnOrphan(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memory.New(), memory.New()
		defer a.Close()
		defer b.Close()
		first, second := &flaky{Driver: a.Join()}, &flaky{Driver: b.Join()}
		f := compose.Fallback(first, second)
		defer f.Close()
		first.hangs.Store(true)
		second.away.Store(true)
		r := driver.Request{Name: "x", ID: "1", TTL: time.Hour}
		if _, err := f.Acquire(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) {
			t.Fatalf("neither answers: %v", err)
		}
		first.hangs.Store(false)
		time.Sleep(2 * time.Second) // the primary is known to be back
		for range 3 {
			g, err := f.Acquire(t.Context(), r)
			if err != nil {
				second.away.Store(false)
				continue
			}
			time.Sleep(time.Minute)
			if err := f.Renew(t.Context(), r.Hold(g.Token), r.TTL); err != nil {
				t.Errorf("the lock that was granted: %v", err)
			}
			return
		}
		t.Error("not granted")
	})
}

// late is a store that requests reach six seconds late.
type late struct{ *memory.Driver }

func (d *late) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	time.AfterFunc(6*time.Second, func() { _, _ = d.Driver.Acquire(context.WithoutCancel(ctx), r) })
	<-ctx.Done()
	return driver.Grant{}, context.Cause(ctx)
}

// tardy is a store that the first request reaches six seconds late.
type tardy struct {
	*memory.Driver
	was       atomic.Bool
	impatient bool // it waits for an answer for a second, and not for as long as its caller
}

func (d *tardy) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.was.CompareAndSwap(false, true) {
		r.Joined = nil
		if !d.impatient {
			return (&late{d.Driver}).Acquire(ctx, r)
		}
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		g, err := (&late{d.Driver}).Acquire(ctx, r)
		return g, driver.Unavailable(err)
	}
	return d.Driver.Acquire(ctx, r)
}

// A request that comes to one store after the ticket was removed from the others is
// undone, whether the call has ended or has queued again.
func TestAllLooksForALateRequest(t *testing.T) {
	for _, how := range []string{"gives up", "is not answered", "queues again"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := memory.New(), memory.New()
				defer a.Close()
				defer b.Close()
				l := locker.New(compose.All(a.Join(), &tardy{Driver: b.Join(), impatient: how == "is not answered"}))
				defer l.Close()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				got := make(chan *locker.Lock, 1)
				go func() {
					k, _ := l.Acquire(ctx, "x")
					got <- k
				}()
				time.Sleep(time.Second)
				want := 0
				switch how {
				case "gives up":
					cancel()
				case "queues again":
					want = 1
					q, err := a.Inspect(t.Context(), "x")
					if err != nil || len(q) != 1 || a.Break(t.Context(), "x", q[0].Token) != nil {
						t.Fatalf("%v, %v", q, err)
					}
				}
				if k := <-got; (k != nil) != (how == "queues again") {
					t.Fatalf("the lock is %v", k)
				}
				time.Sleep(5500 * time.Millisecond)
				if q, _ := b.Inspect(t.Context(), "x"); len(q) != want+1 {
					t.Fatalf("the late request: %v", q)
				}
				time.Sleep(6 * time.Second)
				if q, _ := b.Inspect(t.Context(), "x"); len(q) != want {
					t.Errorf("left on the second store: %v", q)
				}
			})
		})
	}
}

// The same holds for a request that was repeated, and refused by a store or lost on it.
func TestAllLooksForTheRequestBefore(t *testing.T) {
	for _, how := range []string{"refused", "lost"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := memory.New(), memory.New()
				defer b.Close()
				m := compose.All(&tardy{Driver: a}, b)
				defer m.Close()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				r := driver.Request{Name: "x", ID: "1", TTL: time.Minute}
				if _, err := m.Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatal(err)
				}
				holder := driver.Request{Name: "x", ID: "2", TTL: time.Minute}
				if _, err := a.Acquire(t.Context(), holder); err != nil {
					t.Fatal(err)
				}
				want := driver.ErrNotAcquired
				if how == "lost" {
					want, r.Wait = driver.ErrLost, true
					r.Joined = func() {
						q, err := a.Inspect(t.Context(), "x")
						if err != nil || len(q) != 2 || a.Break(t.Context(), "x", q[1].Token) != nil {
							t.Errorf("%v, %v", q, err)
						}
					}
				}
				if _, err := m.Acquire(t.Context(), r); !errors.Is(err, want) {
					t.Errorf("the repeated request: %v, want %v", err, want)
				}
				if err := a.Release(t.Context(), holder.Hold(0)); err != nil {
					t.Error(err)
				}
				time.Sleep(6 * time.Second)
				if q, _ := a.Inspect(t.Context(), "x"); len(q) != 1 {
					t.Errorf("the late request: %v", q)
				}
				time.Sleep(6 * time.Second)
				if q, _ := a.Inspect(t.Context(), "x"); len(q) != 0 {
					t.Errorf("left on the first store: %v", q)
				}
			})
		})
	}
}

// poisoned is a store that fails to remove the tickets of the name x.
type poisoned struct {
	*flaky
	hangs bool // it does not answer; else it refuses
}

func (p poisoned) Release(ctx context.Context, h driver.Hold) error {
	switch {
	case h.Name != "x":
		return p.flaky.Release(ctx, h)
	case p.hangs:
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return errors.New("wrong type of key")
}

// Ping implements driver.Pinger: the store is well.
func (poisoned) Ping(context.Context) error { return nil }

// An orphan that cannot be removed does not keep the others from being removed.
func TestOrphansDoNotWaitForEachOther(t *testing.T) {
	for name, hangs := range map[string]bool{"refused": false, "hangs": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := memory.New()
				defer a.Close()
				first := &flaky{Driver: a.Join()}
				f := compose.Fallback(poisoned{first, hangs}, memory.New())
				defer f.Close()
				first.loses.Store(true)
				for _, name := range []string{"x", "y"} {
					if _, err := f.Acquire(t.Context(), driver.Request{Name: name, ID: name, TTL: time.Hour}); err != nil {
						t.Fatal(err)
					}
				}
				first.loses.Store(false)
				time.Sleep(5 * time.Second)
				if names, err := a.List(t.Context()); err != nil || len(names) != 1 {
					t.Errorf("tickets left on the primary: %v, %v", names, err)
				}
			})
		})
	}
}

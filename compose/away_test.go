package compose_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// took is how long f takes.
func took(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// A wait limit leaves the secondary half of its time, as a context's deadline does.
func TestFallbackWithinTheWaitLimit(t *testing.T) {
	for _, wait := range []time.Duration{100 * time.Millisecond, time.Second, compose.DefaultPatience} {
		bubble(t, func(t *testing.T) {
			p := newBacked(t)
			p.first.hangs.Store(true)
			defer p.first.hangs.Store(false)
			var k *locker.Lock
			if d := took(func() { k = acquire(t, p.all, locker.WithWait(wait)) }); d != wait/2 {
				t.Errorf("wait limit %v: granted after %v", wait, d)
			}
			release(t, k)
			p.reported(t, 1)
		})
	}
}

// A primary that did not answer is remembered: the next request does not wait for it.
func TestFallbackRemembers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		p.first.hangs.Store(true)
		for i, want := range []time.Duration{compose.DefaultPatience, 0, 0, 0} {
			var k *locker.Lock
			if d := took(func() { k = acquire(t, p.all) }); d != want {
				t.Errorf("request %d: granted after %v, want %v", i, d, want)
			}
			if d := p.reported(t, i+1); !errors.Is(d.Degraded, locker.ErrUnavailable) {
				t.Errorf("cause: %v", d.Degraded)
			}
			release(t, k)
		}
		if n := p.first.asked.Load(); n != 1 {
			t.Errorf("the primary was asked %d times", n)
		}
		if d := took(func() { _, _ = p.all.Inspect(t.Context(), "x") }); d != 0 {
			t.Errorf("Inspect took %v", d)
		}
		if d := took(func() { _ = p.all.Ping(t.Context()) }); d != 0 {
			t.Errorf("Ping took %v", d)
		}
		p.first.hangs.Store(false)
		time.Sleep(2 * time.Second)
		release(t, acquire(t, p.all))
		p.reported(t, 4)
	})
}

// The store that answers counts, though the caller's limit is shorter than the patience with
// the other one.
func TestFallbackAnswersWithinTheCallersLimit(t *testing.T) {
	for name, ask := range map[string]func(context.Context, *locker.Client, uint64) error{
		"inspect": func(ctx context.Context, l *locker.Client, _ uint64) error { _, err := l.Inspect(ctx, "x"); return err },
		"list":    func(ctx context.Context, l *locker.Client, _ uint64) error { _, err := l.List(ctx); return err },
		"ping":    func(ctx context.Context, l *locker.Client, _ uint64) error { return l.Ping(ctx) },
		"break":   func(ctx context.Context, l *locker.Client, token uint64) error { return l.Break(ctx, "x", token) },
	} {
		for i := range 2 {
			t.Run(fmt.Sprintf("%s/%d", name, i), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					p := newBacked(t)
					hangs := &[]*flaky{p.first, p.second}[i].hangs
					other := acquire(t, p.on[1-i])
					hangs.Store(true)
					defer hangs.Store(false)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if err := ask(ctx, p.all, other.Token()); err != nil {
						t.Error(err)
					}
					if ctx.Err() != nil {
						t.Error("the answer comes when the limit has passed")
					}
					_ = other.Release(t.Context()) // or broken
				})
			})
		}
	}
}

// A primary that refuses is remembered, too: it is not asked for each lock.
func TestFallbackRemembersARefusal(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		p.first.away.Store(true)
		for range 3 {
			release(t, acquire(t, p.all))
			time.Sleep(time.Second)
		}
		if n := p.first.asked.Load(); n != 1 {
			t.Errorf("the primary was asked %d times", n)
		}
		p.first.away.Store(false)
	})
}

// An answer of the primary to one of its waiters ends the outage as the answer to a Ping does: the
// waiter that it has forgotten meanwhile queues there again, behind the holder.
func TestFallbackHearsThePrimary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		other := acquire(t, p.on[0])
		got := p.background(t)
		p.first.away.Store(true)
		release(t, acquire(t, p.all)) // on the secondary
		time.Sleep(10 * time.Second)
		p.first.away.Store(false)
		if err := p.on[0].Break(t.Context(), "x", p.queue(t, 0, 2).Tickets[1].Token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
		p.queue(t, 0, 2)
		p.queue(t, 1, 0)
		release(t, other)
		release(t, <-got)
		p.reported(t, 1)
	})
}

// halfAway is a store of two servers, each with some of the names, whose Ping asks both. One of them can be away.
type halfAway struct {
	*memory.Driver // the other one
	away           atomic.Bool
}

func (h *halfAway) Ping(context.Context) error {
	if h.away.Load() {
		return errDown
	}
	return nil
}

func (h *halfAway) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if h.away.Load() && r.Name == "away" {
		return driver.Grant{}, driver.NoTicket(errDown)
	}
	return h.Driver.Acquire(ctx, r)
}

// A primary that grants a waiter is away all the same if it does not answer Pings: one of its servers may be.
func TestFallbackOfAStoreThatIsHalfAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := memory.New()
		half := &halfAway{Driver: first.Join()}
		l, elsewhere := locker.New(compose.Fallback(half, memory.New())), locker.New(first)
		defer l.Close()
		defer elsewhere.Close()
		take := func(l *locker.Client, name string) *locker.Lock {
			k, err := l.Acquire(t.Context(), name)
			if err != nil {
				t.Error(err)
			}
			return k
		}
		before, got := take(elsewhere, "waited for"), make(chan *locker.Lock)
		go func() { got <- take(l, "waited for") }()
		time.Sleep(10 * time.Millisecond)
		half.away.Store(true)
		release(t, take(l, "away"))
		time.Sleep(10 * time.Second)
		k := take(l, "x") // on the secondary
		release(t, before)
		waited := <-got
		if again, err := l.TryAcquire(t.Context(), "x"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("%v is held, and %v was granted beside it: %v", k, again, err)
		}
		release(t, k)
		release(t, waited)
		half.away.Store(false)
	})
}

// Pings are sent in an outage only, one at a time, with a back-off. They end with Close.
func TestFallbackPings(t *testing.T) {
	for _, how := range []string{"away", "hangs"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newBacked(t)
				other := acquire(t, p.on[0])
				got := p.background(t)
				time.Sleep(time.Hour)
				release(t, other)
				release(t, <-got)
				if n := p.first.pings.Load(); n != 0 {
					t.Errorf("%d pings while the primary answers", n)
				}
				fault := map[string]interface{ Store(bool) }{"away": &p.first.away, "hangs": &p.first.hangs}[how]
				fault.Store(true)
				var group sync.WaitGroup
				for range 20 {
					group.Go(func() {
						if k, err := p.all.TryAcquire(t.Context(), "x"); err == nil {
							release(t, k)
						} else if !errors.Is(err, locker.ErrNotAcquired) {
							t.Error(err)
						}
					})
				}
				group.Wait()
				time.Sleep(time.Minute)
				n := p.first.pings.Load()
				if n < 10 || n > 120 || p.first.atOnce.Load() {
					t.Errorf("%d pings in a minute, two at once: %v", n, p.first.atOnce.Load())
				}
				fault.Store(false)
				time.Sleep(time.Hour)
				if more := p.first.pings.Load() - n; more > 2 {
					t.Errorf("%d pings after the primary was back", more)
				}
				fault.Store(true)
				acquire(t, p.all)
				time.Sleep(10 * time.Second)
				if d := took(func() { _ = p.all.Close() }); d > 150*time.Millisecond {
					t.Errorf("Close took %v", d)
				}
				n = p.first.pings.Load()
				time.Sleep(time.Hour)
				if more := p.first.pings.Load() - n; more > 0 {
					t.Errorf("%d pings after Close", more)
				}
			})
		})
	}
}

// stuck is a store that does not answer requests for the name x, though it is well.
type stuck struct{ *flaky }

func (s stuck) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Name != "x" {
		return s.flaky.Acquire(ctx, r)
	}
	<-ctx.Done()
	return driver.Grant{}, context.Cause(ctx)
}

// A primary that answers is used, whatever happened to the request for another name.
func TestFallbackIsNotMisledByOneName(t *testing.T) {
	bubble(t, func(t *testing.T) {
		degraded := make(map[string]int)
		first := stuck{&flaky{Driver: memory.New()}}
		l := locker.New(compose.Fallback(first, memory.New()), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Degraded != nil {
				degraded[e.Name]++
			}
		}))
		defer l.Close()
		for range 3 {
			release(t, acquire(t, l))
			k, err := l.Acquire(t.Context(), "y")
			if err != nil {
				t.Fatal(err)
			}
			release(t, k)
		}
		if degraded["x"] != 3 || degraded["y"] != 0 {
			t.Errorf("degraded grants: %v", degraded)
		}
	})
}

// A limit that ends before the patience, and that Fallback cannot see, costs requests at
// the beginning of an outage only.
func TestFallbackUnderHiddenLimits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first := &flaky{Driver: memory.New()}
		first.hangs.Store(true)
		l := locker.New(compose.Fallback(first, memory.New()), locker.WithAnswerTimeout(time.Second))
		defer l.Close()
		defer first.hangs.Store(false)
		if _, err := l.Acquire(t.Context(), "x"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the first request: %v", err)
		}
		time.Sleep(3 * time.Second)
		release(t, acquire(t, l))
	})
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		p.first.hangs.Store(true)
		defer p.first.hangs.Store(false)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := p.all.Acquire(ctx, "x"); !errors.Is(err, context.Canceled) {
			t.Errorf("the first request: %v", err)
		}
		time.Sleep(3 * time.Second)
		release(t, acquire(t, p.all))
	})
}

// A ticket that an earlier, unanswered request may have left on the primary is removed
// there, though the primary is known to be away when the request is repeated.
func TestFallbackRepeatedWhileAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := memory.New()
		defer a.Close()
		first := &flaky{Driver: a.Join()}
		f := compose.Fallback(first, memory.New())
		defer f.Close()
		first.loses.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		time.AfterFunc(100*time.Millisecond, cancel)
		r := driver.Request{Name: "x", ID: "1", TTL: time.Hour}
		if _, err := f.Acquire(ctx, r); err == nil {
			t.Fatal("granted")
		}
		first.loses.Store(false)
		first.hangs.Store(true)
		other := driver.Request{Name: "y", ID: "2", TTL: time.Hour}
		if _, err := f.Acquire(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		first.hangs.Store(false)
		time.Sleep(3 * time.Second)
		if q, err := a.Inspect(t.Context(), "x"); err != nil || len(q) != 0 {
			t.Errorf("left on the primary: %v, %v", q, err)
		}
	})
}

// The lock on the secondary stays when a batch of renewals has others of a primary that hangs.
func TestFallbackRenewsBesideAHangingPrimary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		one, err := p.all.Acquire(t.Context(), "one", locker.WithTTL(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		p.first.away.Store(true)
		two := acquire(t, p.all, locker.WithTTL(time.Second))
		p.first.away.Store(false)
		p.first.hangs.Store(true)
		time.Sleep(10 * time.Second)
		if one.Err() == nil || two.Err() != nil {
			t.Errorf("on the primary: %v, on the secondary: %v", one.Err(), two.Err())
		}
		p.first.hangs.Store(false)
		synctest.Wait()
		release(t, two)
	})
}

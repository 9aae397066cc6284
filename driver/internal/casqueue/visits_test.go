package casqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// visit tries as a process of its own, and reports whether the name was granted.
func (b *bed) visit(r driver.Request, opts ...func(*Options)) bool {
	b.Helper()
	e, _ := b.open(opts...)
	defer func() { _ = e.Close() }()
	_, err := e.Acquire(b.Context(), r)
	if err != nil && !errors.Is(err, driver.ErrNotAcquired) {
		b.Fatal(err)
	}
	return err == nil
}

// call waits as a process of its own, and reports whether the name was granted.
func (b *bed) call(r driver.Request, wait time.Duration) bool {
	b.Helper()
	e, _ := b.open()
	defer func() { _ = e.Close() }()
	got := b.waitsFor(e, r, wait)
	if got != nil {
		if err := e.Release(b.Context(), r.Hold(0)); err != nil {
			b.Fatal(err)
		}
	}
	return got == nil
}

// renew renews the lease of a request of e.
func (b *bed) renew(e *Engine, r driver.Request) {
	b.Helper()
	if err := e.Renew(b.Context(), r.Hold(0), r.TTL); err != nil {
		b.Fatalf("renewal of %s: %v", r.ID, err)
	}
}

// renews renews a lease in the background, and returns a function that waits for the end of that.
func (b *bed) renews(e *Engine, r driver.Request, every time.Duration, end time.Time) (wait func()) {
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for time.Now().Before(end) {
			time.Sleep(every)
			if err := e.Renew(b.Context(), r.Hold(0), r.TTL); err != nil {
				b.Errorf("renewal: %v", err)
			}
		}
	})
	return renewals.Wait
}

// visits visits a name, once in every, until it is granted.
func (b *bed) visits(every time.Duration, visit func(r driver.Request) bool) (took time.Duration) {
	b.Helper()
	for begun, i := time.Now(), 0; ; i++ {
		next := time.Now().Add(every)
		if visit(request("a", fmt.Sprint("visit", i))) {
			return time.Since(begun)
		}
		if time.Sleep(time.Until(next)); time.Since(begun) > 10*time.Minute {
			b.Fatalf("not granted after %d visits", i+1)
		}
	}
}

// A holder that has died blocks nobody for longer than its bound, even if each process that asks lives for a moment. The
// visits begin at each phase of the store's clock and of the holder's renewals.
func TestVisitors(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		visit func(b *bed, r driver.Request) bool
	}{
		"each second": {time.Second, func(b *bed, r driver.Request) bool { return b.visit(r) }},
		"each 10 s":   {10 * time.Second, func(b *bed, r driver.Request) bool { return b.visit(r) }},
		"waits of 1.5 s each 3.5 s": {3500 * time.Millisecond, func(b *bed, r driver.Request) bool {
			return b.call(r, 1500*time.Millisecond)
		}},
		"waits of 50 ms each second": {time.Second, func(b *bed, r driver.Request) bool {
			return b.call(r, 50*time.Millisecond)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for i := range 10 {
				bubble(t, func(b *bed) {
					const ttl = 5 * time.Second
					b.coarse = time.Second
					e, _ := b.open(func(o *Options) { o.ClockError = 2 * time.Second })
					r := request("a", "holder")
					r.TTL = ttl
					b.take(e, r)
					time.Sleep(time.Duration(i) * 130 * time.Millisecond)
					c.visit(b, request("a", "first"))
					for range 3 {
						time.Sleep(ttl/3 + time.Duration(i)*20*time.Millisecond)
						if err := e.Renew(b.Context(), r.Hold(0), ttl); err != nil {
							b.Fatal(err)
						}
					}
					_ = e.Close()
					took := b.visits(c.every, func(r driver.Request) bool { return c.visit(b, r) })
					if bound := e.Bounds(ttl).Crash + c.every; took < ttl || took > bound {
						b.Errorf("granted %v after the last renewal, want %v to %v", took, ttl, bound)
					}
				})
			}
		})
	}
}

// So it is if the last heartbeat before the lease was for shorter ones: the store keeps it for as long as the lease.
func TestVisitorsOfLongerLease(t *testing.T) {
	const ttl = 2 * time.Minute
	long := request("a", "holder")
	long.TTL = ttl
	for name, hold := range map[string]func(b *bed, e *Engine){
		"after a wait": func(b *bed, e *Engine) {
			other, _ := b.open()
			b.take(other, request("a", "other"))
			got := b.waits(e, long)
			time.Sleep(time.Second)
			if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "other"}); err != nil {
				b.Fatal(err)
			}
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			b.renew(e, long)
		},
		"extended": func(b *bed, e *Engine) {
			b.take(e, request("a", "holder"))
			b.renew(e, request("a", "holder"))
			b.renew(e, long)
		},
		"beside a shorter one": func(b *bed, e *Engine) {
			b.take(e, request("b", "shorter"))
			b.renew(e, request("b", "shorter"))
			b.take(e, long)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				e, _ := b.open()
				hold(b, e)
				_ = e.Close()
				const every = 2 * time.Second
				took := b.visits(every, func(r driver.Request) bool { return b.visit(r) })
				if bound := e.Bounds(ttl).Crash + every; took < ttl || took > bound {
					b.Errorf("granted after %v, want %v to %v", took, ttl, bound)
				}
			})
		})
	}
}

// So it is if the visits are as far apart as the heartbeat of a dead process is kept.
func TestVisitorsOncePerMinute(t *testing.T) {
	const ttl = 30 * time.Second
	for _, first := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second, 40 * time.Second, 55 * time.Second} {
		for _, every := range []time.Duration{30 * time.Second, 45 * time.Second, time.Minute, 70 * time.Second, 100 * time.Second} {
			t.Run(fmt.Sprintf("after %v, each %v", first, every), func(t *testing.T) {
				bubble(t, func(b *bed) {
					e, _ := b.open()
					r := request("a", "holder")
					r.TTL = ttl
					b.take(e, r)
					time.Sleep(ttl / 3)
					b.renew(e, r)
					_ = e.Close()
					time.Sleep(first)
					took := b.visits(every, func(r driver.Request) bool { return b.visit(r) })
					if bound := e.Bounds(ttl).Crash + every; took > bound {
						b.Errorf("granted after %v, want %v at the most", took, bound)
					}
				})
			})
		}
	}
}

// The heartbeat of a process that also holds another lock, with a longer lease, is kept for as long.
func TestVisitorsOfOneLockOfTwo(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other := request("b", "other")
		other.TTL = time.Minute
		b.take(e, other)
		r := request("a", "holder")
		r.TTL = 30 * time.Second
		b.take(e, r)
		time.Sleep(r.TTL / 3)
		b.renew(e, r)
		_ = e.Close()
		time.Sleep(55 * time.Second)
		const every = 70 * time.Second
		if took, bound := b.visits(every, func(r driver.Request) bool { return b.visit(r) }), e.Bounds(r.TTL).Crash+every; took > bound {
			b.Errorf("granted after %v, want %v at the most", took, bound)
		}
	})
}

// Many holders have died, and those who ask wait for a moment each: it is enough for one to tell what it has seen.
func TestShortVisitsAfterManyDied(t *testing.T) {
	bubble(t, func(b *bed) {
		b.most = 1 << 20
		var bounds driver.Bounds
		for i := range 50 {
			e, _ := b.open()
			r := request("a", fmt.Sprint("holder ", i))
			r.Shared, r.TTL = true, 5*time.Second
			b.take(e, r)
			b.renew(e, r)
			bounds = e.Bounds(r.TTL)
			_ = e.Close()
		}
		took := b.visits(time.Second, func(r driver.Request) bool {
			e, p := b.open()
			defer func() { _ = e.Close() }()
			p.with(func(verb, key string) fault {
				if verb == "put" && strings.Contains(key, ":h:") {
					return slow
				}
				return fine
			})
			got := b.waitsFor(e, r, 50*time.Millisecond)
			if got != nil {
				_ = e.Release(b.Context(), r.Hold(0))
			}
			return got == nil
		})
		if bound := bounds.Crash + 5*time.Second; took > bound {
			b.Errorf("granted after %v, want %v at the most", took, bound)
		}
	})
}

// A waiter that has died delays such visits no longer, if the store keeps the queue for the sake of a holder.
func TestVisitorsOncePerMinuteBehindDeadWaiter(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "holder")
		r.TTL = 10 * time.Minute
		b.take(holder, r)
		e, _ := b.open()
		b.waits(e, request("a", "waiter"))
		time.Sleep(2 * time.Second)
		_ = e.Close()
		time.AfterFunc(time.Minute, func() { _ = holder.Release(b.Context(), r.Hold(0)) })
		const every = 70 * time.Second
		if took := b.visits(every, func(r driver.Request) bool { return b.visit(r) }); took > every+time.Second {
			b.Errorf("granted after %v, want %v", took, every)
		}
	})
}

// A visitor of one lock does not have the store forget a heartbeat sooner, which is one for a longer lease too.
func TestVisitorOfShorterLease(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		long, short := request("a", "long"), request("b", "short")
		long.TTL, short.TTL = 70*time.Second, time.Second
		b.take(e, long)
		b.visit(request("a", "first"))
		time.Sleep(long.TTL / 3)
		b.take(e, short)
		b.renew(e, long)
		renewed := time.Now()
		b.visit(request("b", "other"))
		time.Sleep(62 * time.Second)
		if b.visit(request("a", "second")) {
			b.Errorf("granted %v after a renewal for %v", time.Since(renewed), long.TTL)
		}
	})
}

// A visitor has the store keep the heartbeats of the holder and of the next waiter, and of no other: those who wait send new
// ones. None is kept for as long as the longest lease in the document.
func TestVisitorKeepsFewHeartbeats(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "holder")
		r.TTL = 10 * time.Minute
		b.take(holder, r)
		b.renew(holder, r)
		var next *Engine
		for i := range window {
			e, _ := b.open()
			b.waits(e, request("a", fmt.Sprint("waiter", i)))
			time.Sleep(time.Second)
			if i == 0 {
				next = e
			}
		}
		visitor, p := b.open()
		var kept atomic.Int32
		p.with(func(verb, key string) fault {
			if verb == "put" && strings.Contains(key, ":h:") {
				kept.Add(1)
			}
			return fine
		})
		if _, err := visitor.Acquire(b.Context(), request("a", "visit")); !errors.Is(err, driver.ErrNotAcquired) {
			b.Fatal(err)
		}
		if n := kept.Load(); n != 1 { // others have told of the holder
			b.Errorf("%d heartbeats were written again, want that of the next waiter", n)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if keep := time.Until(b.docs[next.heartbeatKey(next.process)].until); keep > 3*time.Minute {
			b.Errorf("the heartbeat of a waiter is kept for %v", keep)
		}
	})
}

// If there are many holders, a visitor sends few requests at once.
func TestVisitorKeepsHeartbeatsOfMany(t *testing.T) {
	bubble(t, func(b *bed) {
		b.most = 1 << 20
		for i := range 50 {
			e, _ := b.open()
			r := request("a", fmt.Sprint("holder", i))
			r.Shared = true
			b.take(e, r)
			b.renew(e, r)
			_ = e.Close()
		}
		visitor, p := b.open()
		var sent atomic.Int32
		p.with(func(verb, key string) fault {
			if verb == "put" && strings.Contains(key, ":h:") {
				sent.Add(1)
				return never
			}
			return fine
		})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		time.AfterFunc(time.Second/2, func() {
			if n := sent.Load(); n == 0 || n > inFlight {
				b.Errorf("%d requests at once, want %d at the most", n, inFlight)
			}
		})
		_, _ = visitor.Acquire(ctx, request("a", "visit"))
	})
}

// A holder that renews keeps its lock, whoever visits, and the visits of one life of the ticket write little.
func TestVisitorsOfLiveHolder(t *testing.T) {
	for i := range 10 {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			r := request("a", "holder")
			r.TTL, r.Renewed = 4*time.Second, i%2 == 0 // or its record is renewed
			b.take(e, r)
			end := time.Now().Add(time.Minute)
			defer b.renews(e, r, r.TTL*9/10, end)()
			writes := b.count("put")
			for n := 0; time.Now().Before(end); n++ {
				if b.visit(request("a", fmt.Sprint("try", n))) {
					b.Fatal("granted beside a holder that renews")
				}
				time.Sleep(time.Duration(300+100*i) * time.Millisecond)
			}
			if n := b.count("put") - writes; n > 45 { // a minute has 17 renewals, each of which may be written
				b.Errorf("%d writes in a minute of visits", n)
			}
		})
	}
}

// A visitor that stands still between two of its requests, wherever, tells nothing that takes the lock of a live holder.
func TestVisitorStandsStill(t *testing.T) {
	for stop := range 8 {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			r := request("a", "holder")
			r.TTL = 4 * time.Second
			b.take(e, r)
			defer b.renews(e, r, r.TTL/3, time.Now().Add(90*time.Second))()
			b.visit(request("a", "first"))
			visitor, p := b.open()
			var n atomic.Int32
			p.with(func(string, string) fault {
				if int(n.Add(1)) == stop+1 {
					time.Sleep(20 * time.Second) // in which the document does not change
				}
				return fine
			})
			if _, err := visitor.Acquire(b.Context(), request("a", "stands")); !errors.Is(err, driver.ErrNotAcquired) {
				b.Errorf("stopped before its request %d: %v", stop+1, err)
			}
			for i := range 20 {
				if b.visit(request("a", fmt.Sprint("later", i))) {
					b.Errorf("granted to another visitor after one that stopped before its request %d", stop+1)
				}
				time.Sleep(100 * time.Millisecond)
			}
		})
	}
}

// A heartbeat that the store has lost confirms nothing: there may have been others since the observation.
func TestVisitorMissesHeartbeat(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "holder")
		r.TTL = 4 * time.Second
		b.take(e, r)
		b.renew(e, r)
		b.visit(request("a", "first"))
		for range 4 {
			time.Sleep(r.TTL / 3)
			b.renew(e, r)
		}
		b.lose(":h:")
		if b.visit(request("a", "second")) {
			b.Error("granted beside a holder that has just renewed")
		}
		b.renew(e, r)
		_ = e.Close()
		if took := b.visits(time.Second, func(r driver.Request) bool { return b.visit(r) }); took < r.TTL || took > 7*time.Second {
			b.Errorf("granted %v after the last renewal", took)
		}
	})
}

// Waiters that have died ahead delay short visits little longer than they delay a waiter.
func TestVisitorsBehindDeadWaiters(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		b.take(holder, request("a", "holder"))
		for i := range 30 {
			e, _ := b.open()
			b.waits(e, request("a", fmt.Sprint("dies", i)))
			_ = e.Close()
		}
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "holder"}); err != nil {
			b.Fatal(err)
		}
		took := b.visits(time.Second, func(r driver.Request) bool { return b.visit(r) })
		if bound := 2 * holder.Bounds(time.Minute).Liveness; took > bound {
			b.Errorf("granted after %v, want at most %v", took, bound)
		}
	})
}

package casqueue

import (
	"context"
	"errors"
	"testing"
	"time"
	"unsafe"

	"github.com/lockerproject/locker/driver"
)

// The store keeps the heartbeat and the queue until the waiters have concluded that the holder is dead. So a long
// lease ends within the bound too, and no waiter loses its position in the queue.
func TestLongLease(t *testing.T) {
	for _, ttl := range []time.Duration{15 * time.Minute, 30 * time.Minute} {
		bubble(t, func(b *bed) {
			holder, _ := b.open()
			r := request("a", "1")
			r.TTL = ttl
			g := b.take(holder, r)
			e, _ := b.open()
			got := b.waits(e, request("a", "2"))
			time.Sleep(time.Second)
			if err := holder.Renew(b.Context(), r.Hold(g.Token), ttl); err != nil {
				b.Fatal(err)
			}
			begun := time.Now()
			_ = holder.Close()
			if err := <-got; err != nil {
				b.Errorf("a lease of %v: the waiter got %v after %v", ttl, err, time.Since(begun))
			}
			if took, bound := time.Since(begun), e.Bounds(ttl).Crash; took < ttl || took > bound {
				b.Errorf("a lease of %v ended after %v, want at most %v", ttl, took, bound)
			}
		})
	}
}

// ended closes the holder of a name, and returns how long its lease then lasts.
func (b *bed) ended(holder *Engine, name string) time.Duration {
	b.Helper()
	_ = holder.Close()
	begun := time.Now()
	other, _ := b.open()
	if err := <-b.waits(other, request(name, "after")); err != nil {
		b.Fatal(err)
	}
	return time.Since(begun)
}

// A renewal never shortens a lease (D12), even if one for longer is being written at that time, or is written together
// with it.
func TestRenewalsAtOnce(t *testing.T) {
	for _, together := range []bool{false, true} {
		bubble(t, func(b *bed) {
			first, _ := b.open()
			b.take(first, request("a", "1"))
			e, p := b.open()
			got := b.waits(e, request("a", "2"))
			if err := first.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
				b.Fatal(err)
			}
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			p.once("put", slow)
			if together {
				r := request("a", "3")
				r.Wait = true
				go func() { _, _ = e.Acquire(b.Context(), r) }()
				time.Sleep(10 * time.Millisecond)
			}
			errs := make(chan error)
			for _, ttl := range []time.Duration{time.Minute, 10 * time.Second} {
				go func() { errs <- e.Renew(b.Context(), driver.Hold{Name: "a", ID: "2"}, ttl) }()
				time.Sleep(10 * time.Millisecond)
			}
			if err := errors.Join(<-errs, <-errs); err != nil {
				b.Fatal(err)
			}
			if took := b.ended(e, "a"); took < time.Minute-time.Second {
				b.Errorf("a lease that was renewed for a minute ended after %v (written together: %v)", took, together)
			}
		})
	}
}

// A lease that was once renewed for longer has its own length again when that time is over, however often it was
// renewed meanwhile.
func TestLongerOnce(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "1")
		h := r.Hold(b.take(e, r).Token)
		if err := e.Renew(b.Context(), h, time.Minute); err != nil {
			b.Fatal(err)
		}
		for range 40 {
			time.Sleep(3 * time.Second)
			if err := e.Renew(b.Context(), h, r.TTL); err != nil {
				b.Fatal(err)
			}
		}
		if took, bound := b.ended(e, "a"), e.Bounds(r.TTL).Crash; took > bound {
			b.Errorf("the lease ended %v after its last renewal, want at most %v", took, bound)
		}
	})
}

// A holder whose machine was suspended for most of its TTL writes the document at its next renewal: the store, which was
// not suspended, forgets it soon.
func TestRenewalAfterSuspension(t *testing.T) {
	const ttl = 10 * time.Minute
	b := &bed{t, newFake()} // in no bubble, which has no monotonic clock
	e, _ := b.open()
	r := request("a", "1")
	r.TTL = ttl
	h := r.Hold(b.take(e, r).Token)
	for suspended, want := range map[time.Duration]int{0: 0, 9 * time.Minute: 1} {
		e.mu.Lock()
		setBack(&e.files[e.key("a")].putSent, suspended)
		e.mu.Unlock()
		puts := b.count("put")
		if err := e.Renew(b.Context(), h, ttl); err != nil {
			b.Fatal(err)
		}
		if n := b.count("put") - puts; n != want {
			b.Errorf("%d writes after a suspension of %v, want %d", n, suspended, want)
		}
	}
}

// setBack sets a time back by the wall clock only, in the way in which package time keeps its seconds.
func setBack(t *time.Time, by time.Duration) {
	*(*uint64)(unsafe.Pointer(t)) -= uint64(by/time.Second) << 30 //nolint:gosec // not negative; there is no other way
}

// A renewal of a ticket that waits is ErrLost (D12), even before this process has the answer to the write that queued it.
func TestRenewalBeforeQueued(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "1"))
		waiter, p := b.open()
		b.queue(waiter, "a")
		p.once("put", slow)
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		r := request("a", "2")
		r.Wait = true
		go func() { _, _ = waiter.Acquire(ctx, r) }()
		time.Sleep(20 * time.Millisecond)
		if ids := b.stored("a"); len(ids) != 2 {
			b.Fatalf("queue %q", ids)
		}
		if err := waiter.Renew(b.Context(), r.Hold(0), r.TTL); !errors.Is(err, driver.ErrLost) {
			b.Errorf("renewal: %v", err)
		}
		if err := waiter.Renew(b.Context(), request("a", "1").Hold(0), r.TTL); !errors.Is(err, driver.ErrUnsupported) {
			b.Errorf("renewal of another process's ticket: %v", err)
		}
	})
}

// A waiter is granted without a write. So its lease has the length of a waiter's life until it is renewed (Claim): then
// others count it as dead. A request for less than that gets no more than it asked for.
func TestProvisionalLease(t *testing.T) {
	for _, ttl := range []time.Duration{time.Second, 10 * time.Minute} {
		bubble(t, func(b *bed) {
			first, _ := b.open()
			b.take(first, request("a", "1"))
			e, p := b.open()
			granted := make(chan driver.Grant, 1)
			r := request("a", "2")
			r.TTL, r.Wait = ttl, true
			go func() {
				g, err := e.Acquire(b.Context(), r)
				if err != nil {
					b.Error(err)
				}
				granted <- g
			}()
			time.Sleep(time.Second)
			if err := first.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
				b.Fatal(err)
			}
			g := <-granted
			length := g.Claim
			if length == 0 {
				length = ttl
			}
			p.with(func(string, string) fault { return notDone })
			if err := <-b.waits(first, request("a", "3")); err != nil {
				b.Fatal(err)
			}
			if d := time.Since(g.Asked); d < length || d > e.Bounds(length).Crash {
				b.Errorf("a lease of %v with a claim of %v ended after %v", ttl, g.Claim, d)
			}
		})
	}
}

// A request that is repeated while the first one waits: if one of the two callers leaves, the ticket stays, and the other
// is granted.
func TestOneOfTwoCallersLeaves(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		g := b.take(e, request("a", "1"))
		r := request("a", "2")
		got := b.waits(e, r)
		if err := b.waitsFor(e, r, time.Second); err == nil {
			b.Fatal("granted behind a holder")
		}
		if err := e.Release(b.Context(), request("a", "1").Hold(g.Token)); err != nil {
			b.Fatal(err)
		}
		select {
		case err := <-got:
			if err != nil {
				b.Error(err)
			}
		case <-time.After(time.Minute):
			b.Error("the caller that stayed is not granted")
		}
	})
}

// A renewal never shortens a lease (D12) that was renewed without a write.
func TestShorterAfterRenewalWithoutWrite(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "1")
		h := r.Hold(b.take(e, r).Token)
		time.Sleep(5 * time.Second)
		puts := b.count("put")
		for _, ttl := range []time.Duration{r.TTL, 4 * time.Second} {
			time.Sleep(time.Second)
			if err := e.Renew(b.Context(), h, ttl); err != nil {
				b.Fatal(err)
			}
		}
		if n := b.count("put") - puts; n != 0 {
			b.Errorf("%d writes for two renewals that change nothing", n)
		}
		if took := b.ended(e, "a"); took < r.TTL-time.Second {
			b.Errorf("the lease ended %v after it was renewed for %v, and a second later for less", took+time.Second, r.TTL)
		}
	})
}

// No lease is written for a waiter whose caller has left meanwhile: it could be long, and others would wait for its end if the
// process died before it removed the ticket.
func TestNoLeaseWithoutCaller(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		b.take(holder, request("a", "1"))
		e, p := b.open()
		r := request("a", "2")
		r.Renewed, r.TTL, r.Wait = false, time.Hour, true
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		left := make(chan error)
		go func() {
			_, err := e.Acquire(ctx, r)
			left <- err
		}()
		time.Sleep(time.Second)
		p.once("put", slow) // of the ticket behind, so the lease has to wait
		b.behind(e, request("a", "3"))
		time.Sleep(time.Millisecond)
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		claims := func() bool {
			e.mu.Lock()
			defer e.mu.Unlock()
			return e.tickets["2"].state == claiming
		}
		for !claims() {
			time.Sleep(100 * time.Microsecond)
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
		time.Sleep(time.Second)
		d, err := decode([]byte(b.text("a")))
		if err != nil {
			b.Fatal(err)
		}
		if q := d.find("a"); len(q.Tickets) != 2 || q.Tickets[0].Lease > 0 {
			b.Errorf("the queue %+v, want a ticket without a lease, and the one behind", q.Tickets)
		}
	})
}

// behind acquires in the background, and does not wait until the ticket is queued.
func (b *bed) behind(e *Engine, r driver.Request) {
	r.Wait = true
	go func() { _, _ = e.Acquire(b.Context(), r) }()
}

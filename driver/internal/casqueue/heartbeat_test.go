package casqueue

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A heartbeat that is answered after the life of a ticket is over comes too late: another process may have read the
// previous one, and be about to remove the ticket.
func TestLateHeartbeat(t *testing.T) {
	for _, c := range []struct {
		rest, delay time.Duration
		lost        bool
	}{
		{0, 9 * time.Second, false},
		{0, 11 * time.Second, true},
		{5 * time.Second, 4 * time.Second, false},
		{5 * time.Second, 6 * time.Second, true},
	} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			g := b.take(e, request("a", "1"))
			time.Sleep(c.rest)
			p.with(func(verb, _ string) fault {
				if verb == "set" {
					time.Sleep(c.delay)
				}
				return fine
			})
			h := driver.Hold{Name: "a", ID: "1", Token: g.Token}
			err := e.Renew(b.Context(), h, 10*time.Second)
			if errors.Is(err, driver.ErrLost) != c.lost {
				b.Errorf("a renewal after %v that took %v: %v", c.rest, c.delay, err)
			} else if ids := b.queue(e, "a"); c.lost && len(ids) > 0 {
				b.Errorf("queue %q after the lease was over", ids)
			}
		})
	}
}

// A sign of life at the last moment counts, and a process that lives is never taken for dead.
func TestSignsOfLife(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		g := b.take(e, request("a", "1"))
		other, _ := b.open()
		got := b.waits(other, request("a", "2"))
		for range 5 {
			time.Sleep(9900 * time.Millisecond)
			if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}, 10*time.Second); err != nil {
				b.Fatal(err)
			}
		}
		select {
		case err := <-got:
			b.Fatalf("granted beside a holder that lives (%v)", err)
		default:
		}
		if ids := b.queue(e, "a"); !slices.Equal(ids, []string{"1", "2"}) {
			b.Errorf("queue %q", ids)
		}
	})
}

// However many locks a process holds, renewing them writes once.
func TestOneHeartbeat(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		var rs []driver.Renewal
		for i := range 500 {
			r := request(fmt.Sprint("n", i), fmt.Sprint(i))
			g := b.take(e, r)
			rs = append(rs, driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL})
		}
		for range 10 {
			sets, puts, gets := b.count("set"), b.count("put"), b.count("get")
			time.Sleep(3 * time.Second)
			if err := errors.Join(e.RenewAll(b.Context(), rs)...); err != nil {
				b.Fatal(err)
			}
			if sets, puts, gets = b.count("set")-sets, b.count("put")-puts, b.count("get")-gets; sets != 1 || puts > 0 || gets > 5 {
				b.Errorf("a renewal of 500 locks: %d heartbeats, %d other writes, %d readings", sets, puts, gets)
			}
		}
		time.Sleep(9 * time.Second)
		for range 20 { // the store forgets no document of a lock that is held
			if err := errors.Join(e.RenewAll(b.Context(), rs)...); err != nil {
				b.Fatal(err)
			}
			time.Sleep(9 * time.Second)
		}
	})
}

// A waiter whose last heartbeat was long ago may have expired for others. It takes no provisional lease, but writes its
// lease, which fails if the ticket was removed.
func TestStaleWaiterClaims(t *testing.T) {
	for _, removed := range []bool{false, true} {
		bubble(t, func(b *bed) {
			holder, _ := b.open()
			g := b.take(holder, request("a", "1"))
			e, p := b.open()
			got := b.waits(e, request("a", "2"))
			p.with(func(verb, _ string) fault { // heartbeats do not arrive, everything else does
				if verb == "set" {
					return notDone
				}
				return fine
			})
			time.Sleep(3 * time.Second)
			if removed {
				p.with(func(verb, _ string) fault {
					if verb != "put" {
						return map[string]fault{"set": notDone}[verb]
					}
					p.with(nil)
					if err := holder.Break(b.Context(), "a", g.Token+1); err != nil {
						b.Error(err)
					}
					return fine
				})
			}
			b.queue(holder, "a")
			puts := b.count("put")
			if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}); err != nil {
				b.Fatal(err)
			}
			if err := <-got; errors.Is(err, driver.ErrLost) != removed {
				b.Errorf("granted with %v (removed: %v)", err, removed)
			}
			if n := b.count("put") - puts; n != 2 && !removed {
				b.Errorf("%d writes, want that of the release and that of the claim", n)
			}
		})
	}
}

// A minimum hold lasts, even if the waiter's process dies right after its grant (D20).
func TestMinHoldOfWaiter(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		g := b.take(holder, request("a", "1"))
		e, _ := b.open()
		r := request("a", "2")
		r.MinHold = 9 * time.Second
		got := b.waits(e, r)
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		_ = e.Close()
		if err := <-b.waits(holder, request("a", "3")); err != nil || time.Since(begun) < r.MinHold {
			b.Errorf("granted after %v of a minimum hold of %v (%v)", time.Since(begun), r.MinHold, err)
		}
	})
}

// A repeated Acquire that finds its ticket in the queue does not write the ticket. A write of something else at the
// same time is no sign of life of the ticket, whose removal may be under way.
func TestWrittenBesides(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "1")
		r.Renewed = false
		b.take(holder, r)
		e, p := b.open()
		got := b.waits(e, request("a", "2"))
		e.mu.Lock()
		e.leave(e.tickets["2"]) // its caller has gone, and its release has not come yet
		e.mu.Unlock()
		time.Sleep(3 * time.Second) // without a heartbeat

		p.with(func(verb, _ string) fault {
			if verb == "put" {
				p.with(nil)
				time.Sleep(time.Second) // what is asked for meanwhile is written together
			}
			return fine
		})
		for _, id := range []string{"3", "4"} {
			r := request("a", id)
			r.Wait = true
			go func() { _, _ = e.Acquire(b.Context(), r) }()
			time.Sleep(time.Millisecond)
		}
		b.waits(e, request("a", "2"))
		e.mu.Lock()
		defer e.mu.Unlock()
		if again := e.tickets["2"]; again == nil || !again.lapsed(time.Now()) {
			b.Errorf("a ticket without a sign of life for 4s counts as alive since %v ago", time.Since(again.alive))
		}
		if alive := e.tickets["4"].alive; time.Since(alive) > time.Second {
			b.Errorf("a ticket that was just written counts as alive since %v ago", time.Since(alive))
		}
		select {
		case err := <-got:
			b.Errorf("the first Acquire: %v", err)
		default:
		}
	})
}

// A fixed lease ends, although its process lives and sends heartbeats for something else. It ends for waiters of the
// same process too, and also if it began after a wait.
func TestFixedLease(t *testing.T) {
	const ttl = 10 * time.Second
	for i := range 4 {
		waited, same := i%2 == 1, i/2 == 1
		bubble(t, func(b *bed) {
			busy, _ := b.open()
			r := request("busy", "1")
			r.TTL, r.Renewed = time.Hour, false
			b.take(busy, r)
			e, _ := b.open()
			b.waits(e, request("busy", "2"))
			r = request("a", "3")
			r.TTL, r.Renewed = ttl, false
			if waited {
				b.take(busy, request("a", "0"))
				got := b.waits(e, r)
				if err := busy.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
					b.Fatal(err)
				}
				if err := <-got; err != nil {
					b.Fatal(err)
				}
			} else {
				b.take(e, r)
			}
			begun := time.Now()
			next, _ := b.open()
			if same {
				next = e
			}
			if err := <-b.waits(next, request("a", "4")); err != nil {
				b.Fatal(err)
			}
			took, bound := time.Since(begun), e.Bounds(ttl).Crash
			if took < ttl-100*time.Millisecond || took > bound {
				b.Errorf("a lease of %v (waited for: %v) ended after %v for a waiter (of the same process: %v), want at most %v", ttl, waited, took, same, bound)
			}
		})
	}
}

// A repeated request for a held ticket, with a shorter TTL, leaves the lease as it is.
func TestAskedAgain(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "1")
		g := b.take(e, r)
		r.TTL = 2 * time.Second
		if again := b.take(e, r); again.Token != g.Token {
			b.Errorf("token %d, and %d before", again.Token, g.Token)
		}
		_ = e.Close()
		begun := time.Now()
		other, _ := b.open()
		if err := <-b.waits(other, request("a", "2")); err != nil || time.Since(begun) < 10*time.Second {
			b.Errorf("granted after %v of a lease of 10s (%v)", time.Since(begun), err)
		}
	})
}

// Only the process of a ticket renews it, and only once it is held.
func TestRenewOthers(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		g := b.take(e, request("a", "1"))
		b.waits(e, request("a", "2"))
		if err := other.Renew(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}, time.Minute); !errors.Is(err, driver.ErrUnsupported) {
			b.Errorf("renewal of what another process holds: %v", err)
		}
		if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "2"}, time.Minute); !errors.Is(err, driver.ErrLost) {
			b.Errorf("renewal of a ticket that waits: %v", err)
		}
	})
}

// A store that limits how long it keeps documents gives no longer leases, and says so.
func TestMaxTTL(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open(func(o *Options) { o.MaxTTL = 10 * time.Second })
		r := request("a", "1")
		r.TTL = time.Hour
		if g := b.take(e, r); g.TTL != 10*time.Second || e.Bounds(r.TTL).MaxTTL != g.TTL {
			b.Errorf("a lease of %v, and bounds %+v", g.TTL, e.Bounds(r.TTL))
		}
		r.ID, r.MinHold = "2", time.Minute
		if _, err := e.Acquire(b.Context(), r); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, driver.ErrNoTicket) {
			b.Errorf("a minimum hold that is longer: %v", err)
		}
	})
}

// A process that waits for many names is not taken for dead on a store that is as slow as a healthy one may be, and
// can renew as many locks.
func TestManyNamesOnASlowStore(t *testing.T) {
	bubble(t, func(b *bed) {
		const latency = 250 * time.Millisecond // DynamoDB's
		healthy := func(o *Options) { o.Latency = latency }
		holder, held := b.open(healthy)
		e, p := b.open(healthy)
		var renewals []driver.Renewal
		for i := range 20 * atOnce {
			r := request(fmt.Sprint(i), fmt.Sprint("holder", i))
			r.TTL = time.Hour
			renewals = append(renewals, driver.Renewal{Hold: r.Hold(b.take(holder, r).Token), TTL: r.TTL})
			b.waits(e, request(r.Name, fmt.Sprint("waiter", i)))
		}
		slow := func(string, string) fault {
			time.Sleep(latency)
			return fine
		}
		p.with(slow)
		other, _ := b.open(healthy)
		b.waits(other, request("0", "behind"))
		time.Sleep(20 * time.Second)
		if ids := b.stored("0"); !slices.Equal(ids, []string{"holder0", "waiter0", "behind"}) {
			b.Errorf("queue %q: a process that lives was taken for dead", ids)
		}
		held.with(slow)
		begun := time.Now()
		for _, err := range holder.RenewAll(b.Context(), renewals) {
			if err != nil {
				b.Fatal(err)
			}
		}
		if took := time.Since(begun); took > 5*latency { // with 20 requests to read what is renewed
			b.Errorf("renewals took %v", took)
		}
	})
}

package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// minHolds are the cases about minimum holds.
var minHolds = topic("min-hold",
	newCase("released-early", "D20 C3",
		"a lock that is released before its minimum hold has passed is not granted to others until then", func(e *env) {
			name, c := e.name("released"), e.client()
			k, d, end, ok := e.minHold(c, name)
			if !ok {
				return
			}
			e.release(k)
			e.is(k.Err(), locker.ErrReleased, "the handle of a lock that was released within its minimum hold")
			e.refused(c, name)
			e.grantedAfter(name, d, end, "it was released")
		}),
	newCase("closed-early", "D20 D17 C3",
		"a lock whose Client is closed before its minimum hold has passed is not granted to others until then", func(e *env) {
			released, held, read, waited, c := e.name("released"), e.name("held"), e.name("read"), e.name("waited"), e.client()
			k, d, end, ok := e.minHold(c, released)
			if !ok {
				return
			}
			e.release(k)
			_, _, end2, _ := e.minHold(c, held)
			_, _, end3, _ := e.minHold(c, read, locker.Shared())
			other := e.take(e.client(), waited)
			p := e.acquire(c, waited, locker.WithMinHold(d), locker.WithTTL(e.ttl()))
			e.awaitQueue(waited, 2)
			e.sleep(slack / 4)
			end4 := time.Now().Add(d)
			e.release(other)
			p.granted(patient, "the holder released")
			e.ok(c.Close(), "close with locks within their minimum hold")
			e.together(
				func() { e.grantedAfter(released, d, end, "it was released and its Client closed") },
				func() { e.grantedAfter(held, d, end2, "its Client was closed") },
				func() { e.grantedAfter(read, d, end3, "the Client of a reader was closed") },
				func() { e.grantedAfter(waited, d, end4, "the Client of a holder that had waited was closed") })
		}),
	newCase("crashed-early", "D20 D10 C3",
		"a lock whose process ends before its minimum hold has passed is not granted to others until then", func(e *env) {
			name := e.name("crashed")
			c, link := e.linked()
			_, d, end, ok := e.minHold(c, name)
			if !ok {
				return
			}
			link.Cut() // for good: the process is dead to the store
			e.grantedAfter(name, d, end, "its process was cut off")
		}).needs(NeedLink),
	newCase("shortened", "D20 C3",
		"when a Client is closed, its locks within their minimum hold are free soon after that has passed, however long their leases are", func(e *env) {
			const hold = 2 * time.Second
			if !e.shortens() {
				e.skip("the driver is no driver.Shortener: a minimum hold lasts for the TTL if its Client is closed")
				return
			}
			ttl := e.leaseOf(20 * time.Second)
			released, held, read, c := e.name("released"), e.name("held"), e.name("read"), e.client()
			names := []string{released, held, read}
			ends := make(map[string][2]time.Time) // when the minimum hold ends, at the earliest and at the latest
			for _, name := range names {
				asked := time.Now()
				k, err := c.Acquire(e.within(patience), name, kind{shared: name == read}.options(locker.WithMinHold(hold), locker.WithTTL(ttl))...)
				if name == read && errors.Is(err, locker.ErrUnsupported) {
					continue
				}
				e.ok(err, "acquire %q with a minimum hold", name)
				ends[name] = [2]time.Time{asked.Add(hold), time.Now().Add(hold)}
				if name == released {
					e.release(k)
				}
			}
			e.ok(c.Close(), "close with locks within their minimum hold")
			late := slacks(2).plus(e.bounds(ttl).Crash-ttl, fmt.Sprintf("Bounds(%v).Crash less the TTL, D10", ttl))
			e.each(len(names), func(i int) {
				name := names[i]
				if ends[name][0].IsZero() { // it was refused
					return
				}
				p := e.acquire(e.client(), name)
				next := p.granted(late.plus(time.Until(ends[name][1]), "the rest of the minimum hold"), "its Client was closed within its minimum hold (Shortener)")
				p.notBefore(ends[name][0], "after Close, a minimum hold of %v (D20)", hold)
				e.release(next)
			})
		}),
	newCase("not-lengthened", "D10 D20 C3",
		"Shorten changes no lease that ends earlier, and no other ticket: of one that is not held it returns ErrLost", func(e *env) {
			if !e.shortens() {
				e.skip("the driver is no driver.Shortener")
				return
			}
			_, d := e.controlled()
			s := d.(driver.Shortener)
			other := e.grant(d, e.request(e.name("other")))
			p := e.queueAt(d, e.request(other.Name), 2)
			for _, h := range append(forgeries(e, other), p.r.Hold(0)) {
				e.is(s.Shorten(e.within(patience), h, time.Millisecond), driver.ErrLost, "shorten %+v, beside the holder %+v", h, other)
			}
			e.sleep(slack / 5)
			p.waits("only other leases were shortened")
			p.handOver(d, other, d)

			r := e.request(e.name("longer"))
			r.TTL, r.Renewed = e.ttl(), false
			e.ok(s.Shorten(e.within(patience), e.grant(d, r), 10*time.Minute), "shorten")
			e.awaitQueueWithin(e.leaseEnd(r.TTL).plus(r.TTL, "the lease (D20)"), r.Name, 0)
		}),
)

// minHold acquires name with a minimum hold that the store can give. It returns the
// lock, the minimum hold and its earliest end, or false if the store cannot keep one.
func (e *env) minHold(c *locker.Client, name string, opts ...locker.Option) (k *locker.Lock, d time.Duration, end time.Time, ok bool) {
	d = 3 * time.Second
	if most := e.bounds(d).MaxTTL; most > 0 {
		d = min(d, most)
	}
	asked := time.Now()
	k, err := c.Acquire(e.within(patience), name, append(opts, locker.WithMinHold(d), locker.WithTTL(e.ttl()))...)
	if errors.Is(err, locker.ErrUnsupported) {
		if q := e.queueOf(name); len(q) != 0 {
			e.failf("refused with ErrUnsupported and left in the queue: %s", show(q))
		}
		return nil, 0, time.Time{}, false
	}
	e.ok(err, "acquire %q with a minimum hold of %v", name, d)
	return k, d, asked.Add(d), true
}

// grantedAfter fails if name is granted before the minimum hold ends, or long after.
func (e *env) grantedAfter(name string, d time.Duration, end time.Time, what string) {
	p := e.acquire(e.client(), name)
	next := p.granted(e.afterOutage().and(e.crash(d)).plus(d, "the minimum hold"), what)
	p.notBefore(end, "after %s, a minimum hold of %v (D20)", what, d)
	e.release(next)
}

// shortens reports whether the driver can shorten leases.
func (e *env) shortens() bool {
	_, d := e.controlled()
	s, ok := d.(driver.Shortener)
	if !ok {
		return false
	}
	r := e.request(e.name("nobody"))
	err := s.Shorten(e.within(patience), r.Hold(1), time.Second)
	if errors.Is(err, driver.ErrUnsupported) {
		return false // a wrapper of a driver that cannot
	}
	e.is(err, driver.ErrLost, "shorten the lease of a ticket that is not there")
	return true
}

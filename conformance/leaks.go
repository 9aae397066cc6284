package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lockerproject/locker"
)

var leaks = topic("leaks",
	newCase("keys", "D18 C8",
		"after all is released the store holds nothing that grows with the number of names that were used", func(e *env) {
			a, b := e.client(), e.client()
			before, forgotten := e.usedOnce(a, b)
			e.useRarely(a, b)
			for _, n := range []int{1, rounds(40)} {
				e.each(n, func(i int) { e.use(a, b, e.uncheckedName(fmt.Sprint("key-", i))) })
			}
			e.eventually(forgotten, "waiting for the store to forget names", func() error {
				if n := e.keys(); n > before {
					return fmt.Errorf("the store holds %d keys, and held %d before %d names were used and released, and others inspected, renewed, broken, and held for a minimum", n, before, rounds(40))
				}
				return nil
			})
		}).needs(NeedKeys).at(ownStore).waitsLong(),
	// Holders die, and waiters for names that stay held, so that no other request on these names removes
	// them.
	newCase("keys-of-expired-tickets", "D18 D8 D10 C8",
		"what the leases and waiters of a process that died leave in the store is removed even if nobody uses their names again (waiters only with Harness.OpenLink)", func(e *env) {
			a := e.client()
			e.usedOnce(a, e.client())
			n := rounds(20)
			names, locks := make([]string, n), make([]*locker.Lock, n)
			e.each(n, func(i int) {
				names[i] = e.uncheckedName(fmt.Sprint("wait-", i))
				locks[i] = e.take(a, names[i])
			})
			before := e.awaitSteady(patience, e.keys)
			b := e.crash(e.ttl())
			holders := e.holdersDie(n)
			waiters := 0
			if e.h.OpenLink != nil {
				waiters = n
				e.waitersDie(names)
				for _, other := range []bound{e.crash(waiterTTL), e.deadWaiters()} {
					if other.d > b.d {
						b = other
					}
				}
			}
			e.eventually(b.plus(sweep, "the minute of D18"), "waiting for the store to forget expired tickets", func() error {
				if now := e.keys(); now > before {
					return fmt.Errorf("the store holds %d keys, and held %d before the tickets of %d holders and of %d waiters expired", now, before, holders, waiters)
				}
				return nil
			})
			e.each(n, func(i int) { e.release(locks[i]) })
		}).needs(NeedKeys).at(ownStore).waitsLong(),
	newCase("goroutines", "D17 C8",
		"after Close no goroutine of a driver is left", func(e *env) {
			cycle := func() {
				ca, cb := e.client(), e.client()
				e.use(ca, cb, e.uncheckedName("goroutines"))
				waits := e.name("waits")
				e.take(ca, waits)
				p := e.queue(cb, waits, 2)
				e.ok(cb.Close(), "close")
				e.is(p.ended(patient, "Close"), locker.ErrClosed, "a waiting Acquire")
				d := e.open() // a Client would end the wait itself
				atDriver := e.queueAt(d, e.request(waits), 2)
				e.ok(d.Close(), "close of the driver")
				e.is(atDriver.ended(patient, "Close"), locker.ErrClosed, "a waiting Acquire of the driver")
				_, other := e.controlled()
				_ = other.Release(e.within(patience), atDriver.r.Hold(0)) // what the closed driver may have left
				e.ok(ca.Close(), "close")
			}
			// The driver that observes the queues is closed: as long as it is open, it may open connections.
			cycle()
			e.closeControl()
			const times = 4
			before := e.awaitSteady(patience, runtime.NumGoroutine)
			for range times {
				cycle()
			}
			e.closeControl()
			// One or two may be about to end, or belong to the runtime. A leak is one for
			// each driver.
			e.eventually(patient, "waiting for goroutines to end", func() error {
				after := runtime.NumGoroutine()
				if after < before+times {
					return nil
				}
				buf := make([]byte, 1<<20)
				return fmt.Errorf("%d goroutines before, and %d after %d drivers were opened, used and closed:\n%s",
					before, after, 2*times, buf[:runtime.Stack(buf, true)])
			})
		}).at(alone),
)

// use does everything with a name that could leave something in the store.
func (e *env) use(a, b *locker.Client, name string) {
	k := e.take(a, name)
	e.refused(b, name)
	given := e.queue(b, name, 2)
	given.cancel(nil)
	e.is(given.ended(patient, "it was cancelled"), context.Canceled, "a wait that was cancelled")
	p := e.queue(b, name, 2)
	e.handOver(k, p)
	r1, r2 := e.take(a, name, locker.Shared()), e.take(b, name, locker.Limit(3))
	e.release(r1, r2)
	e.take(a, name, locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
}

// useRarely does the same with names that are inspected, held for a minimum, renewed and broken.
func (e *env) useRarely(a, b *locker.Client) {
	e.queueOf(e.uncheckedName("inspected"))
	held, err := a.Acquire(e.within(patience), e.uncheckedName("held"), locker.WithMinHold(time.Millisecond))
	if !errors.Is(err, locker.ErrUnsupported) {
		e.ok(err, "acquire with a minimum hold")
		e.release(held)
	}
	k := e.take(b, e.uncheckedName("renewed"))
	e.ok(k.Extend(e.within(patience), time.Minute), "extend")
	if err := a.Break(e.within(patience), k.Name(), k.Token()); errors.Is(err, locker.ErrUnsupported) {
		e.release(k)
	} else {
		e.ok(err, "break")
	}
}

// keys returns how much the store holds.
func (e *env) keys() int {
	n, err := e.h.Keys(e.ctx)
	e.ok(err, "count keys")
	return n
}

// usedOnce returns how much the store holds after one name was used. It keeps that
// for ever, whatever the number of names. forgotten is when it holds nothing else.
func (e *env) usedOnce(a, b *locker.Client) (keys int, forgotten bound) {
	first := e.uncheckedName("first")
	e.use(a, b, first)
	e.useRarely(a, b)
	e.awaitQueueWithin(e.crash(shortTTL), first, 0)
	forgotten = e.plusLiveness(e.crash(locker.DefaultTTL), locker.DefaultTTL)
	return e.awaitSteady(forgotten.d, e.keys), forgotten
}

// sweep is the time that D18 gives for the removal of what expired tickets leave.
const sweep = time.Minute

// holdersDie takes n leases of a process that dies. It does not if the store keeps
// them while a process lives and its connection cannot be cut.
func (e *env) holdersDie(n int) (died int) {
	ttl := e.ttl()
	if e.h.OpenLink == nil && keeps(e, e.driver(), e.driver(), ttl) {
		return 0
	}
	d, die := e.killableDriver()
	e.each(n, func(i int) {
		r := e.request(e.uncheckedName(fmt.Sprint("lease-", i)))
		r.TTL, r.Renewed, r.Shared = ttl, false, i%2 == 1
		e.grant(d, r)
	})
	die()
	return n
}

// waitersDie queues a waiter for each name in a process that dies after some
// heartbeats.
func (e *env) waitersDie(names []string) {
	d, link := e.linkedDriver()
	e.each(len(names), func(i int) {
		r := e.request(names[i])
		r.TTL = waiterTTL
		e.queueAt(d, r, 2)
	})
	e.sleep(e.heartbeats())
	link.Cut()
}

// awaitSteady waits until a count has not changed for a second, at most for d, and returns it.
func (e *env) awaitSteady(d time.Duration, count func() int) int {
	last, deadline := count(), time.Now().Add(d)
	for same := 0; same < 4 && time.Now().Before(deadline); same++ {
		e.sleep(250 * time.Millisecond)
		if n := count(); n != last {
			last, same = n, -1
		}
	}
	return last
}

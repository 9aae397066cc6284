package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var downs = topic("outage",
	newCase("release-while-down", "D10 D14 C9",
		"a release while the store is down returns an error within a bound, and the next is granted when the store is back", func(e *env) {
			name, ttl, cs, s := e.name("release"), e.ttl(), e.clients(2), e.server()
			k := e.take(cs[0], name, locker.WithTTL(ttl))
			s.kill()
			e.releaseFails(k, "the store was down")
			s.start()
			e.worksAgain(cs...)
			e.release(e.acquire(cs[1], name).granted(e.crash(ttl).and(e.afterOutage()), "the release that did not arrive"))
		}).needs(NeedServer).at(ownStore),
	newCase("close-while-down", "D16 D17 C9",
		"Close returns within a bound while the store is down", func(e *env) {
			held, waited, cs, s := e.uncheckedName("held"), e.name("waited"), e.clients(2), e.server()
			e.take(cs[0], held, locker.WithTTL(e.ttl()))
			k := e.take(cs[1], waited)
			p := e.queue(cs[0], waited, 2, locker.WithTTL(waiterTTL))
			s.kill()
			begun := time.Now()
			_ = cs[0].Close() // returns that it could not release
			e.atMost(time.Since(begun), 2*storeBound, "Close while the store was down")
			e.is(p.ended(slacks(2), "Close"), locker.ErrClosed, "an Acquire that waited when its Locker was closed")
			s.start()
			e.worksAgain(cs[1])
			e.awaitQueueWithin(e.afterOutage(), waited, 1)
			e.release(k)
		}).needs(NeedServer).at(ownStore),
)

// saysMore reports whether an error wraps more than the end of its context.
func saysMore(err error) bool {
	switch x := err.(type) { //nolint:errorlint // it walks the tree of errors
	case interface{ Unwrap() []error }:
		for _, e := range x.Unwrap() {
			if saysMore(e) {
				return true
			}
		}
		return false
	case interface{ Unwrap() error }:
		return saysMore(x.Unwrap())
	}
	leaves := []error{nil, context.Canceled, context.DeadlineExceeded, driver.ErrUnavailable, driver.ErrNoTicket}
	return !slices.Contains(leaves, err) && err.Error() != errChanged.Error() // a cause is text
}

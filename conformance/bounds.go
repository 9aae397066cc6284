package conformance

import (
	"fmt"
	"time"

	"github.com/lockerproject/locker"
)

// bound is a time that something may take, and where it comes from. A failure
// names that, so that the author of a driver knows which sentence, or which of the
// driver's own numbers, it is about.
type bound struct {
	d  time.Duration
	of string
}

func (b bound) String() string { return fmt.Sprintf("%v (%s)", b.d.Round(time.Millisecond), b.of) }

// plus adds d to the bound.
func (b bound) plus(d time.Duration, of string) bound {
	return bound{b.d + d, fmt.Sprintf("%v: %s + %s", d.Round(time.Millisecond), of, b.of)}
}

// and adds two bounds.
func (b bound) and(c bound) bound { return bound{b.d + c.d, b.of + " + " + c.of} }

// from counts the bound from a moment in the past.
func (b bound) from(at time.Time) bound {
	return bound{b.d + time.Until(at), b.of + ", counted from then"}
}

// patient bounds what has to happen when the case is not about its time.
var patient = bound{patience, fmt.Sprintf("%v: the suite's patience, as no rule names a time", patience)}

// slacks is n times the slack.
func slacks(n int) bound {
	return bound{time.Duration(n) * slack, fmt.Sprintf("%v: the suite's slack", time.Duration(n)*slack)}
}

// crash is how long a holder that has died blocks the queue.
func (e *env) crash(ttl time.Duration) bound {
	d := e.bounds(ttl).Crash
	return slacks(1).plus(d, fmt.Sprintf("Bounds(%v).Crash, D10", ttl))
}

// leaseEnd is when a lease that nobody renews is over while its process lives:
// the core ends a lease that is too short for the store.
func (e *env) leaseEnd(ttl time.Duration) bound {
	if crash := e.crash(ttl); crash.d >= ttl+slack {
		return crash
	}
	return slacks(1).plus(ttl, "the TTL, which is longer than Bounds.Crash")
}

// plusLiveness adds how long a waiter that has died may stay queued.
func (e *env) plusLiveness(b bound, ttl time.Duration) bound {
	return b.plus(e.bounds(ttl).Liveness, fmt.Sprintf("Bounds(%v).Liveness, D8", ttl))
}

// deadWaiters is how long waiters that requested waiterTTL and have died stay queued.
func (e *env) deadWaiters() bound {
	return e.plusLiveness(slacks(1), waiterTTL)
}

// afterOutage bounds a grant after an outage: the request may have to be repeated,
// and a waiter ahead may have died.
func (e *env) afterOutage() bound {
	return e.plusLiveness(patient, locker.DefaultTTL)
}

// removalOfUnanswered is how long the ticket of an Acquire that failed without an answer may
// stay.
func (e *env) removalOfUnanswered() bound {
	if e.bounds(locker.DefaultTTL).Liveness < patience {
		return slacks(1).and(patient)
	}
	return e.plusLiveness(slacks(1), locker.DefaultTTL)
}

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

// dead is how long waiters that requested waiterTTL and have died stay queued.
func (e *env) dead() bound {
	return slacks(1).plus(e.liveness(), fmt.Sprintf("Bounds(%v).Liveness, D8", waiterTTL))
}

// outlives bounds a grant after an outage: the request may have to be repeated,
// and a waiter ahead may have died.
func (e *env) outlives() bound {
	d := e.bounds(locker.DefaultTTL).Liveness
	return patient.plus(d, fmt.Sprintf("Bounds(%v).Liveness, D8", locker.DefaultTTL))
}

// orphan is how long the ticket of an Acquire that failed without an answer may
// stay.
func (e *env) orphan() bound {
	d := e.bounds(locker.DefaultTTL).Liveness
	if d < patience {
		return slacks(1).and(patient)
	}
	return slacks(1).plus(d, fmt.Sprintf("Bounds(%v).Liveness, D8", locker.DefaultTTL))
}

// provesStatedBounds checks Bounds.Crash with a lease that is longer than what
// slack could hide.
func provesStatedBounds(e *env) {
	for _, ttl := range []time.Duration{
		time.Millisecond, shortTTL, waiterTTL, 30 * time.Second, 10 * time.Minute, 24 * time.Hour,
	} {
		e.possible(ttl)
	}
	name := e.name("bounds")
	ttl := max(4*slack, e.ttl())
	d, die := e.mortalDriver()
	r := e.request(name)
	r.TTL, r.Renewed = ttl, false
	asked := time.Now()
	g, err := d.Acquire(e.within(patience), r)
	e.ok(err, "acquire %q", name)
	granted := time.Now()
	die()
	other := e.driver()
	p := e.queueAt(other, e.request(name), 2)
	crash := e.crash(ttl)
	e.ok(p.ended(crash.from(granted), "a lease was granted that nobody renews"), "acquire %q", name)
	if g.TTL > 0 {
		ttl = g.TTL // the store gave less than was asked, and reported it
	}
	if early := asked.Add(ttl).Sub(p.at); early > 0 {
		e.failf("a lease of %v was over %v early: it must not end before its TTL (D10)", ttl, early)
	}
	e.drop(other, p.r.Hold(p.grant.Token))
	e.empty(name)
}

// possible fails if the bounds for a lease contradict each other.
func (e *env) possible(ttl time.Duration) {
	b := e.bounds(ttl)
	if b.MinTTL < 0 || b.MaxTTL < 0 || b.MaxTTL > 0 && b.MaxTTL < b.MinTTL || b.Liveness < 0 {
		e.failf("the bounds for a lease of %v are %+v, want no time negative and MinTTL ≤ MaxTTL", ttl, b)
	}
	least := ttl
	if b.MaxTTL > 0 {
		least = min(ttl, b.MaxTTL)
	}
	if b.Crash < least {
		e.failf("Bounds(%v).Crash is %v: a lease does not end before its TTL (D10), so nobody can be granted sooner than %v after its last renewal; a store that gives no lease so long states MaxTTL, which is %v",
			ttl, b.Crash, least, b.MaxTTL)
	}
}

package conformance

import "time"

// provesStatedBounds holds a driver to Bounds.Crash with a lease that is longer
// than what slack could hide.
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
	e.grant(d, r)
	granted := time.Now()
	die()
	other := e.driver()
	p := e.queueAt(other, e.request(name), 2)
	crash := e.bounds(ttl).Crash
	e.ok(p.ended(crash+slack-time.Since(granted), "the rest of a lease that nobody renews"), "acquire %q", name)
	if early := asked.Add(ttl).Sub(p.at); early > 0 {
		e.failf("a lease of %v was over %v early: it must not end before its TTL (D10)", ttl, early)
	}
	if took := p.at.Sub(granted); took > crash+slack {
		e.failf("the next was granted %v after a lease of %v, want at most %v (Bounds.Crash) and %v (the suite's slack)", took, ttl, crash, slack)
	}
	e.drop(other, p.r.Hold(p.grant.Token))
	e.empty(name)
}

// possible fails when the bounds for a lease contradict each other.
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
		e.failf("Bounds(%v).Crash is %v: a lease does not end before its TTL (D10), so nobody can be granted sooner than %v after its last renewal",
			ttl, b.Crash, least)
	}
}

package sim

import "time"

// Times at which something is about to end. What meets the end of a lease, or of a session that
// several leases share, is seldom drawn by chance.

// nearBound makes a duration, now and then, about as long as a lease, or as the part of one after
// which it is renewed or may not be used for another ticket.
func (g *grammar) nearBound(d *time.Duration, ttl time.Duration) {
	if ttl == 0 || ttl > 6*time.Minute || !g.feature("near a bound", 2) {
		return
	}
	part := pick(g.stream, 1.0/3, 1.0/2, 2.0/3, 5.0/6, 1, 1, 1)
	*d = time.Duration(part * float64(ttl) * (0.9 + 0.2*float64(g.n(1000))/1000))
}

// same gives all leases of half of the seeds the same length, so that they share sessions.
func (g *grammar) same(s *step) {
	switch {
	case !g.feature("one TTL", 1):
	case g.ttl == 0:
		g.ttl = s.ttl
	default:
		s.ttl = g.ttl
	}
}

// poll has the first goroutine of a process ask again and again, without waiting.
func (g *grammar) poll(p *processPlan) {
	try := p.threads[0][0]
	if try.ttl == 0 || try.verb == "all" {
		return
	}
	if try.verb, try.wait = "try", -1; try.release == "never" {
		try.release = ""
	}
	pause := g.between(time.Millisecond, 2*g.holds)
	var steps []step
	for range 3 + g.n(5) {
		steps = append(steps, try, step{verb: "sleep", hold: pause/2 + g.upTo(pause)})
	}
	p.threads[0] = cloneSteps(steps)
}

// loop has the first goroutine of a process take a lock again and again, for a moment, as who works
// off a list does: then tickets come while others go.
func (g *grammar) loop(p *processPlan) {
	one := p.threads[0][0]
	if one.ttl == 0 || one.verb == "all" {
		return
	}
	one.hold, one.extend, one.extendToo, one.inner = g.between(50*time.Microsecond, 10*time.Millisecond), 0, 0, nil
	if one.release == "never" {
		one.release = ""
	}
	var steps []step
	for range 3 + g.n(6) {
		steps = append(steps, one)
	}
	p.threads[0] = steps
}

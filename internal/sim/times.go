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
	pause := time.Duration(0) // long enough for a process to forget what it knew of the queue, or not
	if g.one(2) {
		pause = g.between(time.Millisecond, 5*time.Second)
	}
	for range 3 + g.n(6) {
		if steps = append(steps, one); pause > 0 {
			steps = append(steps, step{verb: "sleep", hold: pause/2 + g.upTo(pause)})
		}
	}
	p.threads[0] = cloneSteps(steps)
}

// extend draws how a lease is extended: to any length, or to many times its own. The lock is held until about
// the end of the extension, now and then.
func (g *grammar) extend(s *step) {
	length := func() time.Duration {
		if g.one(2) {
			return g.between(time.Millisecond, time.Minute)
		}
		return min(g.between(s.ttl, 200*s.ttl), g.mostExtended())
	}
	if s.extend = length(); g.feature("extend more", 2) {
		s.extendToo = length()
	}
	if longest := max(s.extend, s.extendToo); longest > s.ttl && g.one(4) {
		s.hold = time.Duration((0.9 + 0.3*float64(g.n(1000))/1000) * float64(longest))
	}
}

// mostExtended is how far a lease is extended.
func (g *grammar) mostExtended() time.Duration {
	switch g.world {
	case "redis", "redlock": // a released lease may come back with old data
		return time.Minute
	}
	return 3 * time.Minute // others observe the holder of a dead process all that time
}

package sim

import "time"

// Whole plans of a shape that the grammar seldom draws, since it takes many waiters, or much time: they are a few of the focused ones.

// shape draws such a plan, if the seed has one.
func (p *plan) shape(g *grammar) bool {
	s := newStream(g.seed, "shape")
	var shapes []func(*grammar, *stream)
	switch p.world {
	case "redis":
		shapes = []func(*grammar, *stream){p.throng, p.siege, p.wake}
	case "postgres":
		shapes = []func(*grammar, *stream){p.wake, p.outage}
	}
	if len(shapes) == 0 || !s.one(8) {
		return false
	}
	pick(s, shapes...)(g, s)
	return true
}

// several draws processes, all for one name and with leases of one length.
func (p *plan) several(g *grammar, s *stream, n int) (one step) {
	one = step{verb: "acquire", names: g.names[:1], ttl: s.between(4*time.Second, 30*time.Second), wait: -1}
	for i := range n {
		p.processes = append(p.processes, &processPlan{name: "p" + string(rune('0'+i)), lives: 1, closes: 1, start: s.upTo(20 * time.Millisecond)})
	}
	return one
}

// throng has more tickets of one process wait for a name than a heartbeat asks for, while its connections break: what it has
// missed meanwhile is not found by chance.
func (p *plan) throng(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(time.Millisecond, 300*time.Millisecond)
	for range 6 + s.n(20) {
		p.processes[0].threads = append(p.processes[0].threads, []step{one})
	}
	one.hold = s.between(time.Millisecond, 20*time.Millisecond)
	for range 30 + s.n(40) {
		p.processes[1].threads = append(p.processes[1].threads, []step{{verb: "sleep", hold: s.upTo(20 * time.Millisecond)}, one})
	}
	for range 1 + s.n(3) {
		p.faults = append(p.faults, faultPlan{
			kind: "reset", process: "p1", lasts: time.Millisecond, at: s.upTo(time.Second),
			on: "write", by: "p0", skip: s.n(20), served: s.one(2),
		})
	}
}

// siege has two processes hand a lock over for longer than the effects of a failover may last.
func (p *plan) siege(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(300*time.Millisecond, time.Second)
	for _, process := range p.processes {
		var steps []step
		for range int(40*time.Second/one.hold) / 2 {
			steps = append(steps, one)
		}
		process.threads = [][]step{steps}
	}
	p.faults = []faultPlan{{kind: "failover", whole: true, at: s.between(100*time.Millisecond, 5*time.Second), lasts: s.between(10*time.Millisecond, time.Second)}}
}

// wake has waiters die, and the holder release its lock at about the time when they are taken for dead: what was granted to them
// has to be granted to who lives as soon as they are.
func (p *plan) wake(g *grammar, s *stream) {
	one := p.several(g, s, 3+s.n(2))
	last := len(p.processes) - 1
	dies := s.between(200*time.Millisecond, 3*time.Second)
	for i, process := range p.processes {
		process.start = time.Duration(i)*20*time.Millisecond + s.upTo(10*time.Millisecond)
		one.hold = time.Millisecond
		switch {
		case i == 0:
			one.hold = dies + s.between(1500*time.Millisecond, 4*time.Second)
		case i < last:
			process.end, process.dies = dies+s.upTo(50*time.Millisecond), true
		}
		process.threads = [][]step{{one}}
	}
}

// outage has a server go away for a part of the time for which a waiter may be silent.
func (p *plan) outage(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(5*time.Second, 10*time.Second)
	one.ttl = max(one.ttl, 15*time.Second)
	for _, process := range p.processes {
		process.threads = [][]step{{one}}
	}
	p.faults = []faultPlan{{kind: "down", whole: true, at: s.between(time.Second, 4*time.Second), lasts: s.between(500*time.Millisecond, 2400*time.Millisecond)}}
}

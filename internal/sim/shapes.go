package sim

import (
	"fmt"
	"time"

	"github.com/lockerproject/locker/compose"
)

// Whole plans of a shape that the grammar seldom draws, since it takes many waiters, or much time: they are a few of the focused ones.

// shape draws such a plan, if the seed has one.
func (p *plan) shape(g *grammar) bool {
	s := newStream(g.seed, "shape")
	var shapes []func(*grammar, *stream)
	every := 0 // how many plans there are for one with a shape; 0: by the number of shapes
	switch p.world {
	case "redis":
		shapes = []func(*grammar, *stream){p.throng, p.siege, p.wake}
	case "postgres":
		shapes = []func(*grammar, *stream){p.wake, p.outage, p.crush, p.stillborn, p.mumble, p.echo}
	case "redlock":
		shapes = []func(*grammar, *stream){p.permits, p.debt}
	case "bank":
		shapes = []func(*grammar, *stream){p.heir}
	case "etcd":
		shapes, every = []func(*grammar, *stream){p.reuse, p.reuse, p.interlude, p.deafness, p.recluse}, 5
	case "consul":
		shapes, every = []func(*grammar, *stream){p.reuse, p.reuse, p.pretender}, 6
	case "memcached":
		shapes, every = []func(*grammar, *stream){p.bystander, p.famine}, 10
	case "dynamodb":
		shapes, every = []func(*grammar, *stream){p.bystander}, 16
	case "all":
		shapes, every = []func(*grammar, *stream){p.stranger, p.straggler}, 8
	case "fallback":
		shapes = []func(*grammar, *stream){p.hesitation, p.drought}
	}
	if every == 0 && len(shapes) > 0 {
		every = max(3, 8/len(shapes))
	}
	if len(shapes) == 0 || !s.one(every) {
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
	one := p.several(g, s, 3+s.n(3))
	last := len(p.processes) - 1
	dies := s.between(200*time.Millisecond, 3*time.Second)
	for i, process := range p.processes {
		process.start = time.Duration(i)*20*time.Millisecond + s.upTo(10*time.Millisecond)
		if i == last { // its heartbeats come at other times than those of the others
			process.start += s.upTo(time.Second)
		}
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

// mostOutage is for how long a database may be down without costing a waiter its ticket: less than its liveness, by the time since the
// last heartbeat, a quarter of that, and by the pause between two tries and the time that it takes to connect.
const mostOutage = 2600 * time.Millisecond

// outage has a server go away for a part of the time for which a waiter may be silent: mostly for so long that all its heartbeats fail
// but one, and that must come soon afterwards.
func (p *plan) outage(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(5*time.Second, 10*time.Second)
	one.ttl = max(one.ttl, 15*time.Second)
	for _, process := range p.processes {
		process.threads = [][]step{{one}}
	}
	p.faults = []faultPlan{{kind: "down", whole: true, at: s.between(time.Second, 4*time.Second), lasts: s.between(pick(s, 500*time.Millisecond, 2*time.Second, 2*time.Second), mostOutage)}}
}

// crush has a process ask for many locks at once over a slow network, with few connections: requests wait for one.
func (p *plan) crush(g *grammar, s *stream) {
	one := p.several(g, s, 1)
	one.verb, one.hold = "try", s.between(time.Millisecond, time.Second)
	for i := range 6 + s.n(6) {
		one.names = []string{fmt.Sprint("n", i)}
		p.processes[0].threads = append(p.processes[0].threads, []step{one, {verb: "sleep", hold: time.Second}, one})
	}
	p.faults = []faultPlan{{kind: "slow", process: "p0", by: "p0", on: "read", lasts: time.Minute}}
}

// stillborn has the first heartbeat of a process be done and not answered, and the next ones lost, until the process has expired
// of which it does not know that it was registered: each of some heartbeats, or all that it sends in about that time.
func (p *plan) stillborn(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(10*time.Second, 20*time.Second)
	p.processes[0].threads = [][]step{{one}}
	one.hold = time.Millisecond
	p.processes[1].start = 50 * time.Millisecond
	p.processes[1].threads = [][]step{{one}, {{verb: "sleep", hold: s.between(10*time.Millisecond, 2*time.Second)}, one}}
	f := faultPlan{kind: "deaf", process: "p1", by: "p1", on: "kind", nth: 1 + s.n(3), lasts: s.between(time.Second, 4*time.Second)}
	cut := f
	if cut.kind, cut.delay, cut.lasts = "cut", s.between(10*time.Millisecond, 2*time.Second), s.between(2500*time.Millisecond, 5*time.Second); s.one(2) {
		p.faults = []faultPlan{f, cut}
		return
	}
	for range 2 + s.n(8) {
		f.more = append(f.more, "drop")
	}
	p.faults = []faultPlan{f}
}

// permits has more processes ask for permits than there are, while each majority of Redlock's nodes has other tickets.
func (p *plan) permits(g *grammar, s *stream) {
	nodes := redlockNodes(g.seed)
	one := p.several(g, s, nodes/2+2+s.n(2))
	one.shared, one.limit = true, 2
	for i, process := range p.processes {
		process.start = time.Duration(i) * s.upTo(50*time.Millisecond)
		one.hold = s.between(time.Second, 6*time.Second)
		process.threads = [][]step{{one}}
	}
	p.apart(nodes, g)
}

// mumble has some heartbeats of a waiter be done and not answered, before it is granted: it does not know from when its lease counts.
func (p *plan) mumble(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(time.Second, 5*time.Second)
	p.processes[0].threads = [][]step{{one}}
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	f := faultPlan{kind: "deaf", process: "p1", by: "p1", on: "kind", nth: 1 + s.n(3), skip: s.n(4), lasts: s.between(300*time.Millisecond, 2*time.Second)}
	for range s.n(4) {
		f.more = append(f.more, "deaf")
	}
	p.faults = []faultPlan{f}
}

// echo has a process try again and again to get what others hold for moments, while its requests are late: one that was refused
// may be granted yet, since it was sent before.
func (p *plan) echo(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	for i, verb := range []string{"acquire", "try"} {
		one.verb, one.hold = verb, s.between(20*time.Millisecond, time.Second)
		pause := step{verb: "sleep", hold: s.between(10*time.Millisecond, 500*time.Millisecond)}
		var steps []step
		for range 8 {
			steps = append(steps, one, pause)
		}
		p.processes[i].threads = [][]step{steps}
	}
	p.faults = []faultPlan{{kind: "lag", process: "p1", by: "p1", on: "write", skip: 1, lasts: s.between(time.Second, 10*time.Second)}}
}

// debt has a process release a lock while one of Redlock's nodes is out of reach, and live on.
func (p *plan) debt(g *grammar, s *stream) {
	one := p.several(g, s, 1)
	one.ttl, one.hold = s.between(15*time.Second, 30*time.Second), s.between(500*time.Millisecond, 3*time.Second)
	p.processes[0].threads = [][]step{{one, {verb: "sleep", hold: 40 * time.Second}}}
	p.faults = []faultPlan{{kind: "cut", process: "p0", server: s.n(redlockNodes(g.seed)), only: true, at: one.hold / 2, lasts: s.between(one.hold, 5*time.Second)}}
}

// reuse has a process take a lock again and again, while a message of it is late: its keys are used again.
func (p *plan) reuse(g *grammar, s *stream) {
	one := p.several(g, s, 1)
	one.hold = s.between(300*time.Millisecond, 3*time.Second)
	var steps []step
	for range 8 {
		steps = append(steps, one)
	}
	p.processes[0].threads = [][]step{steps}
	p.faults = []faultPlan{{kind: "hold", process: "p0", by: "p0", on: "write", skip: s.n(10), lasts: s.between(4*time.Second, 15*time.Second)}}
}

// heir has a call wait for another one of its owner, which fails, and then ask for a ticket itself. That request is lost.
func (p *plan) heir(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(5*time.Second, 20*time.Second)
	p.processes[0].threads = [][]step{{one}}
	one.hold, one.owner, one.wait = time.Millisecond, "twins", s.between(100*time.Millisecond, 3*time.Second)
	p.processes[1].start = 50 * time.Millisecond
	p.processes[1].threads = [][]step{{one}, {{verb: "sleep", hold: s.between(time.Millisecond, 50*time.Millisecond)}, one}}
	p.processes[1].threads[1][1].wait = -1
	p.faults = []faultPlan{{kind: "drop", process: "p1", by: "p1", on: "kind", skip: 1, lasts: s.between(5*time.Second, 25*time.Second)}}
}

// hesitation has the first store answer just when a caller of Fallback has turned to the second one, while both are held.
func (p *plan) hesitation(g *grammar, s *stream) {
	one := p.several(g, s, 3)
	for i, process := range p.processes {
		process.start = time.Duration(i) * 5 * time.Second
		one.hold = s.between(20*time.Second, 30*time.Second)
		process.threads = [][]step{{one}}
	}
	p.faults = []faultPlan{
		{kind: "cut", process: "p1", by: "p1", only: true, on: "kind", lasts: time.Minute},
		{kind: "keep", process: "p2", by: "p2", on: "kind", at: 6 * time.Second, lasts: compose.DefaultPatience - 15*time.Millisecond + s.upTo(50*time.Millisecond)},
	}
}

// interlude has a ticket come and go between two of another process: the put of the second reads it, and is answered when the
// first has seen it go.
func (p *plan) interlude(g *grammar, s *stream) {
	one := p.several(g, s, 3)
	one.ttl, one.hold = 30*time.Second, 5500*time.Millisecond // the queue is read again after about 1, 3 and 7 s
	p.processes[0].threads = [][]step{{one}}
	second := s.between(3700*time.Millisecond, 4200*time.Millisecond)
	one.hold = s.between(time.Millisecond, 300*time.Millisecond)
	p.processes[1].start = 50 * time.Millisecond
	p.processes[1].threads = [][]step{{one}, {{verb: "sleep", hold: second}, one}}
	p.processes[2].start = second - 50*time.Millisecond
	one.wait = s.between(200*time.Millisecond, 400*time.Millisecond)
	p.processes[2].threads = [][]step{{one}}
	p.faults = []faultPlan{{kind: "keep", process: "p1", by: "p1", on: "write", at: second, lasts: s.between(500*time.Millisecond, time.Second)}}
}

// deafness has the watch of a waiter be silent for good, before the lock is released.
func (p *plan) deafness(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(time.Second, 10*time.Second)
	p.processes[0].threads = [][]step{{one}}
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "stall", process: "p1", by: "p1", at: s.between(300*time.Millisecond, one.hold), lasts: time.Millisecond}}
}

// recluse has a process ask for several locks that are held, when the first member that it knows has just been cut off.
func (p *plan) recluse(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(3*time.Second, 6*time.Second)
	p.processes[1].start = 50 * time.Millisecond
	asked := s.between(100*time.Millisecond, 300*time.Millisecond)
	for i := range 5 {
		one.names = []string{fmt.Sprint("n", i)}
		p.processes[0].threads = append(p.processes[0].threads, []step{one})
		p.processes[1].threads = append(p.processes[1].threads, []step{{verb: "sleep", hold: asked}, one})
	}
	p.faults = []faultPlan{{kind: "stale", process: "p1", by: "p1", at: asked, lasts: s.between(2*time.Second, 8*time.Second)}}
}

// pretender has a leader be deposed soon after a process has begun to wait, and answer its watch at the end of the query.
func (p *plan) pretender(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.ttl, one.hold = s.between(40*time.Second, time.Minute), s.between(50*time.Second, 100*time.Second)
	p.processes[0].threads = [][]step{{one}}
	p.processes[1].start, p.processes[1].threads = s.upTo(20*time.Millisecond), [][]step{{one}}
	p.faults = []faultPlan{{kind: "stale", process: "p1", by: "p1", on: "write", skip: s.n(4), served: true, lasts: time.Minute}}
}

// bystander has a process wait for two locks at once, without a fault: it does not read the queues until it is notified.
func (p *plan) bystander(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.ttl = 30 * time.Second
	p.processes[1].start = 100 * time.Millisecond
	for i := range 2 {
		one.names = []string{fmt.Sprint("n", i)}
		one.hold = s.between(time.Second, 8*time.Second)
		p.processes[0].threads = append(p.processes[0].threads, []step{one, one})
		p.processes[1].threads = append(p.processes[1].threads, []step{one, one})
	}
}

// famine has a server refuse all writes for longer than a lease, while somebody waits for the holder.
func (p *plan) famine(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.ttl, one.hold = s.between(4*time.Second, 6*time.Second), 30*time.Second
	p.processes[0].threads = [][]step{{one}}
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "full", whole: true, at: s.between(time.Second, 3*time.Second), lasts: one.ttl + s.between(500*time.Millisecond, 4*time.Second)}}
}

// stranger has a process hold a lock on the second store alone, and another one lose it on the first while it waits.
func (p *plan) stranger(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.ttl, one.hold = s.between(2*time.Second, 6*time.Second), s.between(15*time.Second, 30*time.Second)
	p.processes[0].alone, p.processes[0].threads = true, [][]step{{one}}
	one.hold = time.Millisecond
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "cut", process: "p1", by: "p1", only: true, at: s.between(500*time.Millisecond, 2*time.Second), lasts: one.ttl + s.between(time.Second, 8*time.Second)}}
}

// straggler has a request to the second store come when its caller has left, and the first has removed the ticket.
func (p *plan) straggler(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.ttl, one.hold = 3*time.Minute, time.Millisecond
	p.processes[1].start, p.processes[1].threads = 30*time.Second, [][]step{{one}}
	one.timeout, one.cause = s.between(500*time.Millisecond, 2*time.Second), "cancelled"
	p.processes[0].threads = [][]step{{one, {verb: "sleep", hold: time.Minute}}}
	p.faults = []faultPlan{{kind: "hold", process: "p0", by: "p0", on: "write", skip: 1, lasts: s.between(3*time.Second, 12*time.Second)}}
}

// drought has the first store go away for good while a caller with a limit waits there.
func (p *plan) drought(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.ttl, one.hold = 30*time.Second, time.Minute
	p.processes[0].threads = [][]step{{one}}
	one.wait = s.between(12*time.Second, 20*time.Second)
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "cut", process: "p1", by: "p1", only: true, at: s.between(time.Second, 3*time.Second), lasts: 30 * time.Second}}
}

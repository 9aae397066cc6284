package sim

import (
	"fmt"
	"time"

	"github.com/lockerproject/locker/compose"
)

// Whole plans of a shape that the grammar seldom draws, since it takes many waiters, or much time: they are a few of the focused ones.

// rareShapes is how seldom a focused plan has a shape that shows its fault nearly each time.
const rareShapes = 20

// presses is how seldom a focused plan without another shape has many goroutines of a process want one name at once, in the worlds whose drivers have
// something in common for them: a run of a script, a write, a watch, a connection.
var presses = map[string]int{
	"redis": 6, "redlock": 30, "etcd": 30, "consul": 30, "postgres": 30, "mysql": 30, "sqlite": 30, "memcached": 30, "nats": 30, "dynamodb": 60,
}

// shape draws such a plan, if the seed has one.
func (p *plan) shape(g *grammar) bool {
	s := newStream(g.seed, "shape")
	var shapes, rare []func(*grammar, *stream)
	every := 0 // how many plans there are for one with a shape
	switch p.world {
	case "redis":
		shapes, every = []func(*grammar, *stream){p.throng, p.siege, p.wake, p.relay}, 3
		rare = []func(*grammar, *stream){p.limits, p.trim, p.dawn}
	case "redlock":
		shapes, every = []func(*grammar, *stream){p.permits, p.debt}, 4
		rare = []func(*grammar, *stream){p.amnesia, p.overtake}
	case "sqlite":
		shapes, every = []func(*grammar, *stream){p.wake, p.outage, p.mumble, p.halt}, 5
	case "postgres", "mysql":
		shapes, every = []func(*grammar, *stream){p.wake, p.outage, p.crush, p.stillborn, p.mumble, p.echo}, 3
	case "bank": // a run costs little there, and its other plans find most
		shapes, every = []func(*grammar, *stream){p.heir, p.stretch, p.errand, p.belated, p.haste, p.hush}, 6
	case "etcd":
		shapes, every = []func(*grammar, *stream){p.reuse, p.reuse, p.interlude, p.deafness, p.recluse}, 5
	case "zookeeper":
		shapes, every = []func(*grammar, *stream){p.reuse, p.turnstile, p.hermit, p.rush, p.breaker}, 5
	case "consul":
		shapes, every = []func(*grammar, *stream){p.reuse, p.reuse, p.pretender}, 6
	case "memcached":
		shapes, every = []func(*grammar, *stream){p.bystander, p.famine}, 10
	case "dynamodb":
		shapes, every = []func(*grammar, *stream){p.bystander}, 16
	case "all":
		shapes, every = []func(*grammar, *stream){p.stranger, p.straggler}, 8
	case "fallback":
		shapes, every = []func(*grammar, *stream){p.hesitation, p.drought}, 4
	}
	switch n := presses[p.world]; {
	case len(rare) > 0 && newStream(g.seed, "rare shape").one(rareShapes):
		pick(s, rare...)(g, s)
	case len(shapes) > 0 && s.one(every):
		pick(s, shapes...)(g, s)
	case n > 0 && newStream(g.seed, "press").one(n):
		p.press(g, s)
	default:
		return false
	}
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

// relay has the goroutines of a process hand a lock on among themselves while requests of theirs are late or lost. One
// holds for long, some extend the lease at once, and another process breaks tickets.
func (p *plan) relay(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	p.processes[0].observer = pick(s, "", "", "slow")
	for i := range 4 + s.n(6) {
		var steps []step
		for range 2 + s.n(8) {
			next := one
			next.hold = s.upTo(5 * time.Millisecond)
			if i == 0 {
				next.hold = s.between(600*time.Millisecond, 4*time.Second)
			} else if s.one(12) {
				next.extend = s.between(5*time.Second, time.Minute)
			}
			steps = append(steps, next)
		}
		p.processes[0].threads = append(p.processes[0].threads, steps)
	}
	var breaks []step
	for range s.n(20) {
		breaks = append(breaks, step{verb: "sleep", hold: s.upTo(20 * time.Millisecond)}, step{verb: "break", names: one.names, wait: -1})
	}
	p.processes[1].threads = [][]step{breaks}
	f := faultPlan{kind: pick(s, "hold", "drop"), process: "p0", by: "p0", on: "kind", nth: 1 + s.n(8), skip: s.n(30), lasts: s.between(time.Second, 4*time.Second)}
	for range s.n(4) { // the same when it is sent again
		p.faults = append(p.faults, f)
		f.skip++
	}
}

// press has many goroutines of a process want one name at once, for moments, while another process has it now and then. Some
// leave early, and some requests of theirs are late, or lost, or not answered: one that is for several of them, too.
func (p *plan) press(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	for range 6 + s.n(8) {
		var steps []step
		for range 2 + s.n(4) {
			next := one
			next.hold = s.upTo(time.Millisecond)
			if s.one(3) {
				next.timeout, next.cause = s.between(time.Millisecond, time.Second), pick(s, causes...)
			}
			steps = append(steps, next)
		}
		p.processes[0].threads = append(p.processes[0].threads, steps)
	}
	one.hold = s.between(time.Millisecond, time.Second)
	p.processes[1].threads = [][]step{{one, one}}
	for range 1 + s.n(4) {
		f := faultPlan{
			kind: pick(s, "hold", "hold", "drop", "deaf"), process: "p0", by: "p0", on: pick(s, "write", "kind"), nth: 1 + s.n(8), skip: s.n(12),
			lasts: s.between(300*time.Millisecond, 4*time.Second),
		}
		if p.faults = append(p.faults, f); s.one(2) {
			f.kind, f.delay, f.harmless = "leave", s.upTo(100*time.Millisecond), true
			p.faults = append(p.faults, f)
		}
	}
}

// siege has two processes hand a lock over for longer than the effects of a failover may last.
func (p *plan) siege(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.ttl = min(one.ttl, recovery*2/3) // a lease whose release was lost with the old primary ends within those
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

// halt has a process stand still as it begins to release a lock for which others wait with short leases, of which one sends
// heartbeats meanwhile.
func (p *plan) halt(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(time.Second, 3*time.Second)
	p.processes[0].threads = [][]step{{one}}
	one.ttl = s.between(time.Second, sqliteLiveness)
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "hold", process: "p0", by: "p0", on: "kind", nth: 2 + s.n(5), lasts: s.between(300*time.Millisecond, 3*time.Second)}}
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

// stretch has a lease extended to many times its length, and held until after that.
func (p *plan) stretch(g *grammar, s *stream) {
	one := p.several(g, s, 1)
	one.ttl = s.between(shortTTL, 1500*time.Millisecond)
	one.extend = time.Duration(60+s.n(60)) * one.ttl // of 66 on, the safety margin is longer than what is left of the TTL when it is renewed
	one.hold = one.extend + s.upTo(one.extend/4)
	p.processes[0].threads = [][]step{{one}}
}

// errand has a process lose leases, one after the other, of which a slow observer hears, while it renews another one.
func (p *plan) errand(g *grammar, s *stream) {
	one := p.several(g, s, 1)
	p.processes[0].observer = "slow"
	one.ttl, one.hold = s.between(2*time.Second, 5*time.Second), time.Minute
	brief := one
	brief.names, brief.ttl, brief.fixed, brief.release = []string{"brief"}, s.between(shortTTL, 2*time.Second), true, "never"
	brief.hold = time.Millisecond
	p.processes[0].threads = [][]step{{one}, {brief, brief, brief, brief, brief, brief}}
}

// belated has a process wait for longer than its TTL, and lose the renewal of its grant, which is over when it comes.
func (p *plan) belated(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(4*time.Second, 10*time.Second)
	p.processes[0].threads = [][]step{{one}}
	one.ttl, one.hold = s.between(time.Second, 3*time.Second), time.Millisecond
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: pick(s, "drop", "deaf"), process: "p1", by: "p1", on: "write", skip: 1, lasts: s.between(11*time.Second, 25*time.Second)}}
}

// haste has leases that are over about when they are granted, since an answer takes a large part of them, and waits that end as soon.
func (p *plan) haste(g *grammar, s *stream) {
	one := p.several(g, s, 2+s.n(2))
	scale := s.between(2*time.Millisecond, 30*time.Millisecond)
	if s.one(3) {
		scale = s.between(100*time.Millisecond, 2*time.Second)
		p.faults = []faultPlan{{kind: "slow", process: "p1", lasts: time.Minute}}
	}
	one.ttl = scale
	for _, process := range p.processes {
		var steps []step
		for range 12 {
			one.hold, one.wait = s.upTo(2*scale), 1+s.upTo(3*scale)
			steps = append(steps, one)
		}
		process.threads = [][]step{steps}
	}
}

// hush has a store be silent at the end of a wait, for long enough for its Client to know, but not for the driver.
func (p *plan) hush(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = 30 * time.Second
	p.processes[0].threads = [][]step{{one}}
	at := s.between(100*time.Millisecond, 5*time.Second)
	one.hold, one.wait = time.Millisecond, at+silence+s.between(10*time.Millisecond, 2*time.Second)
	if s.one(2) {
		one.timeout, one.cause, one.wait = one.wait, pick(s, causes...), -1
	}
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "cut", process: "p1", at: at, lasts: one.wait + one.timeout}}
}

// limits has a process ask for a permit of two while one is held, and who wants the only one waits, perhaps beside a dead waiter.
func (p *plan) limits(g *grammar, s *stream) {
	one := p.several(g, s, 3)
	one.shared = true
	for i, process := range p.processes {
		process.start = time.Duration(i) * s.between(20*time.Millisecond, time.Second)
		one.limit, one.hold = []int{1 + s.n(3), 1, 2}[i], s.between(3*time.Second, 6*time.Second)
		process.threads = [][]step{{one}}
	}
	if s.one(2) {
		return
	}
	// Somebody else who waits is dead by then.
	one.limit = 1
	p.processes[0].threads[0][0].hold += 4 * time.Second
	p.processes[2].start += 4 * time.Second
	p.processes = append(p.processes, &processPlan{
		name: "p3", lives: 1, closes: 1, start: p.processes[1].start + s.upTo(100*time.Millisecond), end: 300 * time.Millisecond, dies: true, threads: [][]step{{one}},
	})
}

// trim has who was granted a lock after a short wait extend it at once, by less than it has.
func (p *plan) trim(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(50*time.Millisecond, 1200*time.Millisecond)
	p.processes[0].threads = [][]step{{one}}
	one.hold, one.extend = s.between(time.Second, 5*time.Second), s.between(time.Millisecond, time.Second)
	p.processes[1].start, p.processes[1].threads = 30*time.Millisecond, [][]step{{one}}
}

// dawn has a server refuse everybody while it reads its data, and then do what it is asked for, but nobody hears of it: the caller
// leaves. The last that its process has heard is that refusal.
func (p *plan) dawn(g *grammar, s *stream) {
	one := p.several(g, s, 1)
	one.verb, one.hold = pick(s, "try", "acquire"), time.Millisecond
	crash := faultPlan{kind: "crash", whole: true, at: s.between(100*time.Millisecond, time.Second), lasts: s.between(200*time.Millisecond, 2*time.Second)}
	steps := []step{one, {verb: "sleep", hold: crash.at + crash.lasts/2}}
	one.timeout, one.cause = s.between(100*time.Millisecond, 2*time.Second), pick(s, causes...)
	for range 30 {
		steps = append(steps, one, step{verb: "sleep", hold: s.between(10*time.Millisecond, 80*time.Millisecond)})
	}
	p.processes[0].threads = [][]step{steps}
	p.faults = []faultPlan{crash, {
		kind: "cut", process: "p0", by: "p0", on: "write", served: true, skip: s.n(3),
		at: crash.at + crash.lasts, lasts: s.between(2*time.Second, 5*time.Second),
	}}
}

// amnesia has a node of Redlock lose its data, perhaps, and a process, to which it answers late, choose a number by what the others remember.
func (p *plan) amnesia(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(time.Millisecond, 300*time.Millisecond)
	crash := faultPlan{kind: "crash", server: s.n(redlockNodes(g.seed)), at: s.between(time.Second, 20*time.Second), lasts: s.between(10*time.Millisecond, time.Second)}
	p.processes[1].start = crash.at + crash.lasts + s.between(100*time.Millisecond, 5*time.Second)
	for _, process := range p.processes {
		process.threads = [][]step{{one}}
	}
	p.faults = []faultPlan{crash, {kind: "slow", process: "p1", server: crash.server, only: true, at: p.processes[1].start + 50*time.Microsecond, lasts: time.Minute}}
}

// overtake has a proposal of a waiter come to one node of Redlock when a later one, of which the ticket holds, has been there.
func (p *plan) overtake(g *grammar, s *stream) {
	nodes := redlockNodes(g.seed)
	one := p.several(g, s, 2)
	late := s.between(1500*time.Millisecond, 3800*time.Millisecond) // a connection that its process has given up keeps it for three seconds
	one.hold = s.between(time.Second, late)
	p.processes[0].threads = [][]step{{one}}
	one.hold = 5 * time.Second
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "hold", process: "p1", by: "p1", on: "write", skip: 2*nodes + s.n(nodes), lasts: late}}
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

// turnstile has more callers ask for permits than there are, which each hold for another time: many wait for the grant of
// the ticket ahead.
func (p *plan) turnstile(g *grammar, s *stream) {
	one := p.several(g, s, 3)
	one.shared = true
	limit, differ := 1+s.n(3), s.one(3)
	for _, process := range p.processes {
		for range 2 {
			var steps []step
			for range 3 {
				if one.limit, one.hold = limit, s.between(time.Millisecond, 3*time.Second); differ {
					one.limit = 1 + s.n(3)
				}
				steps = append(steps, one, step{verb: "sleep", hold: s.between(time.Millisecond, 300*time.Millisecond)})
			}
			process.threads = append(process.threads, steps)
		}
	}
	if s.one(2) {
		p.faults = []faultPlan{{kind: pick(s, "reset", "cut"), process: "p1", by: pick(s, "p0", "p1"), on: "write", skip: s.n(20), lasts: s.between(10*time.Millisecond, 2*time.Second), served: s.one(2)}}
	}
}

// hermit has the server of a holder be cut off from the others for longer than a session, and somebody wait.
func (p *plan) hermit(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = time.Minute
	p.processes[0].threads = [][]step{{one}}
	one.hold = s.between(time.Second, 10*time.Second)
	p.processes[1].start, p.processes[1].threads = 50*time.Millisecond, [][]step{{one}}
	p.faults = []faultPlan{{kind: "stale", process: "p0", at: s.between(100*time.Millisecond, 5*time.Second), lasts: s.between(5*time.Second, time.Minute)}}
}

// breaker has a process break tickets by a server that was the leader, perhaps, and is cut off from the others.
func (p *plan) breaker(g *grammar, s *stream) {
	one := p.several(g, s, 2)
	one.hold = s.between(300*time.Millisecond, 3*time.Second)
	p.processes[0].threads = [][]step{{one, one, one}}
	var steps []step
	for range 4 {
		steps = append(steps, step{verb: "sleep", hold: s.between(100*time.Millisecond, time.Second)}, step{verb: "break", names: one.names, wait: -1})
	}
	p.processes[1].threads = [][]step{steps}
	p.faults = []faultPlan{{kind: "stale", process: "p1", at: s.between(50*time.Millisecond, time.Second), lasts: s.between(2*time.Second, 10*time.Second)}}
}

// rush has readers try again and again to come in beside another one, and writers wait.
func (p *plan) rush(g *grammar, s *stream) {
	one := p.several(g, s, 3)
	pause := step{verb: "sleep", hold: s.between(100*time.Microsecond, 10*time.Millisecond)}
	for i, process := range p.processes {
		next, times := one, 12
		next.hold = s.between(time.Millisecond, 30*time.Millisecond)
		if next.shared = i > 0; i == 1 {
			next.hold, times = s.between(20*time.Millisecond, 200*time.Millisecond), 4
		} else if i == 2 {
			next.verb = "try"
		}
		var steps []step
		for range times {
			steps = append(steps, next, pause)
		}
		process.threads = [][]step{steps}
	}
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

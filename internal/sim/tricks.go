package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Tricks are faults that begin at the moment of a message, or that concern only some of the
// messages, so that two rare events meet within a handful of them:
//
//	lag    each write has an even chance to arrive late, behind what is sent after it
//	mute   each write has an even chance to be done, and its answer to be lost
//	blur   each answer to a reading has an even chance to be late, behind what happens meanwhile
//	lose   no write arrives, and each reading does
//
// or that concern one message alone, with which they begin:
//
//	drop   it never arrives, and some time later its connection breaks
//	deaf   it is served, its answer never arrives, and some time later its connection breaks
//	hold   it arrives late, perhaps behind what is sent after it
//	keep   its answer arrives late
//
// A fault of any kind may wait for one of the next writes or readings of a process, or for one of
// a kind that the process has sent (faultPlan.on), and begin when that is sent or, with served, when the server has done it.
// What a program may do at any time is done at such moments, too:
//
//	leave  the contexts of a process's calls end
//	quit   the process closes its Client
var tricks = []string{"lag", "mute", "blur", "lose"}

// single are the tricks that concern one message.
var single = []string{"drop", "deaf", "hold", "keep"}

// tricks draws faults for a plan that has some already. What it draws comes from a stream of
// its own: the rest of the plan is the same with it and without.
func (p *plan) tricks() {
	s := newStream(p.seed, "tricks")
	kinds := append([]string{"cut", "reset", "suspend", "pause", "crash", "full", "die", "quit", "leave", "leave"}, tricks...)
	kinds = append(kinds, tricks...)
	switch p.world {
	case "consul", "etcd", "zookeeper":
		kinds = append(kinds, "stale", "stale", "stale", "stale")
	case "redis":
		kinds = append(kinds, "failover", "failover")
	}
	kinds = some(s, 1+s.n(3), kinds)
	minority := p.world == "redlock" && len(p.faults) == 0 && s.one(2)
	for range 1 + s.n(4) {
		f := faultPlan{at: s.upTo(pick(s, time.Second, 20*time.Second)), lasts: s.between(10*time.Millisecond, 20*time.Second), kind: pick(s, kinds...)}
		f.server, f.process = s.n(2), pick(s, p.processes...).name
		f.on, f.by, f.skip, f.served = pick(s, "", "write", "write", "write", "read"), f.process, max(0, s.n(9)-3), s.one(2)
		if s.one(3) {
			f.by = pick(s, p.processes...).name
		}
		switch f.kind {
		case "pause", "crash", "full", "failover":
			f.whole, f.lasts = true, min(f.lasts, 5*time.Second)
		case "lag", "mute", "blur", "lose":
			f.whole = s.one(3)
		case "stale": // a query that waits is answered at its end
			f.lasts = s.between(time.Second, 20*time.Second)
		case "leave", "quit":
			f.harmless = true
		}
		if minority && f.kind != "die" {
			f.ofMinority(s, redlockNodes(p.seed))
		}
		p.faults = append(p.faults, f)
	}
	p.holdLonger(s)
}

// ofMinority has a fault concern a minority of Redlock's nodes, which nobody may notice.
func (f *faultPlan) ofMinority(s *stream, nodes int) {
	if f.kind == "suspend" {
		f.kind = "cut"
	}
	f.server, f.harmless = s.n(nodes/2), true
	f.only = !f.whole
}

// holdLonger has some locks held for minutes.
func (p *plan) holdLonger(s *stream) {
	p.eachStep(func(_ *processPlan, step *step) {
		if step.ttl >= time.Second && step.hold > 0 && s.one(40) {
			step.hold = s.upTo(4 * time.Minute)
		}
	})
}

// trap is a fault that waits for a message.
type trap struct {
	process string
	write   bool
	nth     int // of the process's kinds of messages, from 1 on; 0: of any kind
	served  bool
	once    *once   // what becomes of the message; nil: nothing special
	more    []*once // what becomes of those of the kind that follow it
	skip    int     // how many messages pass first; guarded by world.mu
	begin   func()
	sprung  chan struct{}
}

// arm waits until the fault's message comes, and begins the fault then, before anything else
// happens. It reports false if no such message has come for a while.
func (w *world) arm(f faultPlan, begin func()) bool {
	const most = 30 * time.Second
	t := &trap{process: f.by, write: f.on == "write", served: f.served, skip: f.skip, begin: begin, sprung: make(chan struct{})}
	if f.on == "kind" {
		t.nth = 1 + f.nth
	}
	if slices.Contains(single, f.kind) {
		t.once = &once{f.kind, f.lasts, f.writes}
		for _, kind := range f.more {
			t.more = append(t.more, &once{kind, f.lasts, f.writes})
		}
	}
	w.mu.Lock()
	w.traps = append(w.traps, t)
	w.mu.Unlock()
	select {
	case <-t.sprung:
		return true
	case <-time.After(time.Until(w.unique(time.Now().Add(most)))):
	}
	return !w.disarm(t)
}

// disarm takes a trap away; it reports false if that has sprung.
func (w *world) disarm(t *trap) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.traps {
		if other == t {
			w.traps = append(w.traps[:i:i], w.traps[i+1:]...)
			return true
		}
	}
	return false
}

// passes springs the traps for a message that is sent now, or has been served. It returns what becomes
// of the message; nil: nothing special.
func (p *path) passes(what string, served bool) (one *once) {
	w := p.w
	if !served {
		w.busy.count(w, p.process)
	}
	w.mu.Lock()
	kind := 0
	if w.kinds != nil {
		kind = w.kinds.of(p.process, what)
	}
	var all []*trap
	for _, t := range w.traps {
		switch {
		case t.process != p.process || t.served != served || t.nth == 0 && t.write != writes(what) || t.nth > 0 && t.nth != kind:
		case t.skip > 0:
			t.skip--
		default:
			all = append(all, t)
		}
	}
	w.mu.Unlock()
	if served && writes(what) {
		w.wrote(p.rnd)
	}
	for _, t := range all {
		if w.disarm(t) {
			t.begin()
			close(t.sprung)
			if t.once != nil {
				one = t.once
			}
			w.follow(t)
		}
	}
	return one
}

// follow sets the trap for the message that follows that of another trap.
func (w *world) follow(t *trap) {
	if len(t.more) == 0 {
		return
	}
	next := *t
	next.once, next.more, next.skip, next.sprung = t.more[0], t.more[1:], 0, make(chan struct{})
	next.begin = func() { w.fault(next.once.kind, next.process, time.Now().Add(next.once.lasts)) }
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traps = append(w.traps, &next)
}

// writes reports whether a request may change what the server has.
func writes(what string) bool {
	switch verb, _, _ := strings.Cut(what, " "); verb {
	case "BatchGetItem", "DescribeTable", "GET", "inspect", "list", "wait", "dial", "mg", "stats", "version", "range", "ttl", "get", "info", "barrier", "sub",
		"connect", "beat", "watches", "exists", "children", "sync", "read", "begin":
		return false
	case "txn": // of etcd and ZooKeeper
		return strings.Contains(what, " put:") || strings.Contains(what, " delete:") || strings.Contains(what, " set:")
	case "PUT":
		return !strings.Contains(what, "/v1/txn") || !readsOnly([]byte(what))
	}
	return !strings.HasPrefix(what, "*") || strings.Contains(what, "\r\neval") // of Redis, as go-redis sends it
}

// plays reports whether a trick is played on a message now.
func (p *path) plays(trick string, rnd *stream) bool { return p.has(trick) && rnd.one(2) }

// has reports whether a trick is played now.
func (p *path) has(trick string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tricked[trick].After(time.Now())
}

// mostLag is how late a write may be.
const mostLag = 80 * time.Second

// settle waits until all writes have arrived that may be late.
func (r *runner) settle() {
	if slices.ContainsFunc(r.plan.faults, func(f faultPlan) bool { return f.kind == "lag" || f.kind == "hold" }) {
		r.w.sleep(mostLag)
	}
}

// lag draws how late a write arrives. The core looks for late tickets for half a minute;
// package casqueue has to be safe from writes that are later than that.
func (p *path) lag(rnd *stream) time.Duration {
	most := 15 * time.Second
	if p.w.watched {
		most = mostLag
	}
	return rnd.between(20*time.Millisecond, most)
}

// trick plays a trick on the messages of a process, or of all, until then.
func (r *runner) trick(f faultPlan, until time.Time) {
	play := func(p *path) {
		if (f.only || f.harmless) && p.s != r.w.servers[f.server] {
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.tricked == nil {
			p.tricked = make(map[string]time.Time)
		}
		p.tricked[f.kind] = latest(p.tricked[f.kind], until)
	}
	if !f.whole {
		r.each(f.process, play)
		return
	}
	for _, p := range r.plan.processes {
		r.each(p.name, play)
	}
}

// ends ends the present life of a process, or its calls.
func (r *runner) ends(name, how string) {
	r.mu.Lock()
	var last *process
	for _, p := range r.processes {
		if p.name == name {
			last = p
		}
	}
	r.mu.Unlock()
	switch {
	case last == nil || last.isDead() || last.isClosing():
	case how == "die":
		last.kill()
	case how == "quit":
		last.quit()
	default:
		last.leave()
	}
}

// when is how a trap is written in a plan.
func (f faultPlan) when() string {
	on := f.on
	if on == "kind" {
		on = fmt.Sprintf("message of kind %d", f.nth)
	}
	switch {
	case f.on == "":
		return ""
	case f.writes > 0:
		return fmt.Sprintf(", %v after %s sends a %s, after %d more, until %d others have written; then %v", f.delay, f.by, on, f.skip, f.writes, f.more)
	case f.served:
		return fmt.Sprintf(", %v after a %s of %s has been done, after %d more; then %v", f.delay, on, f.by, f.skip, f.more)
	}
	return fmt.Sprintf(", %v after %s sends a %s, after %d more; then %v", f.delay, f.by, on, f.skip, f.more)
}

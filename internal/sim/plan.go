package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// plan is everything that the world decides beforehand. It is data, so that a plan that
// shows a violation can be made smaller.
type plan struct {
	seed      uint64
	world     string
	processes []*processPlan
	faults    []faultPlan
}

// processPlan is the life of a process.
type processPlan struct {
	name     string
	start    time.Duration
	lives    int // more than one: a cron, which opens, asks, closes, and comes back
	pause    time.Duration
	threads  [][]step
	end      time.Duration // when it is closed or dies, whatever it does then; 0: when its threads have ended
	dies     bool          // at the end, in each life
	closes   int           // how many goroutines close it
	observer string        // "", "slow" or "panics"
}

// step is one call of the public API, and what is done while the lock is held.
type step struct {
	verb      string // acquire, try, do, all, inspect, list, break, ping, sleep
	names     []string
	shared    bool
	limit     int
	ttl       time.Duration
	fixed     bool
	minHold   time.Duration
	wait      time.Duration // < 0: none
	owner     string
	noReentry bool
	timeout   time.Duration // of the caller's context; 0: none
	cause     string        // with which the context ends
	hold      time.Duration
	extend    time.Duration // while it is held; 0: not
	inner     []step        // while it is held
	release   string        // "", "cancelled" (its ctx has ended), "twice", "never"
}

func (s *step) String() string {
	var b strings.Builder
	fmt.Fprint(&b, s.verb, " ", strings.Join(s.names, "+"))
	add := func(yes bool, format string, args ...any) {
		if yes {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	locks := s.ttl > 0
	add(s.shared && s.limit == 0, "shared")
	add(s.limit > 0, "limit=%d", s.limit)
	add(locks, "ttl=%v", s.ttl)
	add(s.fixed, "fixed")
	add(s.minHold > 0, "minhold=%v", s.minHold)
	add(locks && s.wait >= 0, "wait=%v", s.wait)
	add(s.owner != "", "owner=%s", s.owner)
	add(s.noReentry, "noreentry")
	add(s.timeout > 0, "timeout=%v(%s)", s.timeout, s.cause)
	add(s.hold > 0, "for %v", s.hold)
	add(s.extend > 0, "extend=%v", s.extend)
	add(s.release != "", "release=%s", s.release)
	add(len(s.inner) > 0, "with %d inside", len(s.inner))
	return b.String()
}

// faultPlan is a fault of the world.
type faultPlan struct {
	at, lasts time.Duration
	kind      string // cut, suspend, slow, reset, stale, die: of a process; pause, down, crash, full, failover: of a server; tricks: see there
	process   string
	server    int
	only      bool // of a process: it concerns the way to that server alone
	harmless  bool // the store promises that nobody notices

	on     string // "write" or "read": the fault begins with the process's next one after at
	served bool   // … when that has been done
	whole  bool   // the process is only the one whose message begins it
}

func (f faultPlan) String() string {
	if f.only {
		return fmt.Sprintf("%s %s from server %d for %v", f.kind, f.process, f.server, f.lasts)
	}
	if f.process != "" && !f.whole {
		return fmt.Sprintf("%s %s for %v%s", f.kind, f.process, f.lasts, f.when())
	}
	if slices.Contains(tricks, f.kind) {
		return fmt.Sprintf("%s all for %v%s", f.kind, f.lasts, f.when())
	}
	return fmt.Sprintf("%s server %d for %v%s", f.kind, f.server, f.lasts, f.when())
}

// worlds are the worlds by name. One that is here twice is drawn twice as often.
var worlds = []string{
	"bank", "bank", "memcached", "memcached", "consul", "consul", "etcd", "etcd", "dynamodb", "dynamodb", "redis", "redis", "redlock", "redlock",
	"postgres", "postgres", "memory", "all", "fallback",
}

// draw makes the plan of a seed.
func draw(seed uint64, world string) *plan {
	s := newStream(seed, "plan")
	p := &plan{seed: seed, world: pick(s, worlds...)}
	if world != "" {
		p.world = world
	}
	g := &grammar{stream: s, world: p.world}
	for range 1 + s.n(3) {
		g.names = append(g.names, fmt.Sprintf("n%d", len(g.names)))
		g.limits = append(g.limits, 1+s.n(3))
	}
	g.short = s.one(4) // leases that are over soon
	g.minority = p.world == "redlock" && s.one(2)
	calm := s.one(3)
	for i := range 1 + s.n(4) {
		p.processes = append(p.processes, g.process(fmt.Sprintf("p%d", i), calm))
	}
	if !calm && p.world != "memory" {
		for range 1 + s.n(4) {
			p.faults = append(p.faults, g.fault(p))
		}
	}
	p.tricks()
	return p
}

// redlockNodes is how many nodes the world "redlock" has.
const redlockNodes = 5

// grammar draws programs.
type grammar struct {
	*stream
	world  string
	names  []string
	limits []int // of each name, when it is a semaphore
	short  bool

	minority bool // only a minority of the servers fails
}

func (g *grammar) process(name string, calm bool) *processPlan {
	p := &processPlan{name: name, lives: 1, closes: 1 + g.n(2), start: g.upTo(5 * time.Second)}
	if g.one(4) {
		p.lives, p.pause = 2+g.n(6), g.between(time.Millisecond, 5*time.Second)
	}
	for range 1 + g.n(3) {
		var steps []step
		for range 1 + g.n(6) {
			steps = append(steps, g.step(0))
		}
		p.threads = append(p.threads, steps)
	}
	if g.one(3) || p.lives > 1 {
		p.end = g.between(10*time.Millisecond, time.Minute)
	}
	p.dies = p.end > 0 && !calm && g.world != "memory" && g.one(3)
	if g.one(4) {
		p.observer = pick(g.stream, "slow", "slow", "panics")
	}
	return p
}

func (g *grammar) step(depth int) step {
	if depth == 0 && g.one(6) {
		return step{verb: "sleep", hold: g.between(time.Microsecond, 10*time.Second)}
	}
	if g.one(8) {
		s := step{verb: pick(g.stream, "inspect", "inspect", "list", "ping", "break"), names: []string{pick(g.stream, g.names...)}, wait: -1}
		if g.one(3) {
			s.timeout, s.cause = g.between(time.Microsecond, time.Second), pick(g.stream, causes...)
		}
		return s
	}
	s := step{verb: pick(g.stream, "acquire", "acquire", "acquire", "try", "try", "do", "all"), wait: -1}
	g.kind(&s)
	g.lease(&s)
	g.limitsOf(&s, depth)
	s.hold = g.between(time.Microsecond, 3*time.Second)
	if g.one(8) {
		s.hold = g.upTo(2 * min(s.ttl, 20*time.Second))
	}
	if g.one(8) {
		s.extend = g.between(time.Millisecond, time.Minute)
	}
	if depth < 2 && g.one(4) {
		for range 1 + g.n(2) {
			s.inner = append(s.inner, g.step(depth+1))
		}
	}
	if s.verb == "acquire" || s.verb == "try" {
		s.release = pick(g.stream, "", "", "", "cancelled", "twice")
		if s.fixed && g.one(4) {
			s.release = "never"
		}
	}
	return s
}

// kind draws what is locked, and in which mode.
func (g *grammar) kind(s *step) {
	i := g.n(len(g.names))
	s.names = []string{g.names[i]}
	if s.verb == "all" {
		for range g.n(3) {
			s.names = append(s.names, pick(g.stream, g.names...))
		}
	}
	switch g.n(5) {
	case 0:
		s.shared = true
	case 1:
		s.shared, s.limit = true, g.limits[i]
	}
	s.noReentry = g.one(6)
	if g.one(5) {
		s.owner = pick(g.stream, "alice", "bob")
	}
}

// lease draws a lease.
func (g *grammar) lease(s *step) {
	s.ttl = g.between(time.Second, 30*time.Second)
	switch {
	case g.short:
		s.ttl = g.between(time.Millisecond, 2*time.Second)
	case g.one(20):
		s.ttl = g.between(time.Minute, 5*time.Hour)
		switch g.world {
		case "memcached", "dynamodb", "all": // others observe the holder of a dead process all that time
			s.ttl = min(s.ttl, 3*time.Minute)
		case "redis", "redlock": // a released lease may come back with old data
			s.ttl = min(s.ttl, time.Minute)
		}
	}
	if s.fixed = g.one(4); s.fixed {
		s.ttl = min(s.ttl, 30*time.Second)
	}
	if g.one(12) {
		s.minHold = g.between(time.Millisecond, 20*time.Second)
	}
}

// limitsOf draws how long the caller waits. What is wanted while something is held has a
// limit, for two processes may want what the other one holds.
func (g *grammar) limitsOf(s *step, depth int) {
	if depth > 0 || g.one(2) || s.ttl < shortTTL { // such a lease may always be over when the answer comes
		s.wait = g.between(time.Millisecond, time.Minute)
		if g.one(10) {
			s.wait = 0
		}
	}
	if depth == 0 && g.one(3) {
		s.timeout, s.cause = g.between(time.Microsecond, 30*time.Second), pick(g.stream, causes...)
	}
}

// causes are what may have ended a caller's context.
var causes = []string{"deadline", "cancelled", "not acquired", "lost", "closed", "other"}

// fault draws a fault.
func (g *grammar) fault(p *plan) faultPlan {
	f := faultPlan{at: g.upTo(pick(g.stream, 8*time.Second, 30*time.Second)), lasts: g.between(10*time.Millisecond, 40*time.Second)}
	kinds := []string{"cut", "cut", "suspend", "slow", "reset", "pause", "down", "crash", "full"}
	if g.world == "consul" || g.world == "etcd" {
		kinds = append(kinds, "stale", "stale")
	}
	if g.world == "redis" {
		kinds = append(kinds, "failover", "failover")
	}
	f.kind = pick(g.stream, kinds...)
	switch f.kind {
	case "cut", "suspend", "slow", "reset", "stale":
		f.process = pick(g.stream, p.processes...).name
	case "crash":
		f.lasts = min(f.lasts, 5*time.Second)
	}
	switch g.world {
	case "all", "fallback":
		f.server = g.n(2)
	case "redlock":
		f.server = g.n(redlockNodes)
		if f.only = f.process != "" && f.kind != "suspend" && g.one(2); g.minority {
			if f.server = g.n(redlockNodes / 2); f.kind == "suspend" {
				f.kind = "cut"
			}
			f.only, f.harmless = f.process != "", true
		}
	}
	return f
}

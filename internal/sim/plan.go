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
	alone    bool          // in the world "all": it uses the second store alone
	stays    bool          // it closes only when others have had all names
	keeps    time.Duration // the length of the lease that it keeps meanwhile
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
	extendToo time.Duration // … and from another goroutine at the same time; 0: not
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
	add(s.extendToo > 0, "extendtoo=%v", s.extendToo)
	add(s.release != "", "release=%s", s.release)
	add(len(s.inner) > 0, "with %d inside", len(s.inner))
	return b.String()
}

// faultPlan is a fault of the world.
type faultPlan struct {
	at, lasts time.Duration
	kind      string // cut, suspend, slow, reset, stale, stall, die, quit, leave: of a process; pause, down, crash, full, failover, hand: of a server; tricks: see there
	process   string
	server    int
	only      bool // of a process: it concerns the way to that server alone
	harmless  bool // the store promises that nobody notices

	on     string        // "write", "read" or "kind": the fault begins with such a message after at
	nth    int           // of a kind: which one, in the order in which the process has first sent one
	by     string        // … of this process
	skip   int           // … when so many have passed
	served bool          // … when that has been done
	delay  time.Duration // … so long after it
	more   []string      // kinds of faults, each of the next message of that kind: of one that concerns a message
	writes int           // a message that is late comes when so many other writes have been done, if that is sooner; 0: not
	whole  bool          // it concerns all processes
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
	"nats", "nats", "postgres", "postgres", "mysql", "mysql", "sqlite", "sqlite", "zookeeper", "zookeeper", "memory", "all", "fallback",
}

// draw makes the plan of a seed.
func draw(seed uint64, world string) *plan {
	s := newStream(seed, "plan")
	p := &plan{seed: seed, world: pick(s, worlds...)}
	if world != "" {
		p.world = world
	}
	g := newGrammar(s, seed, p.world)
	if newStream(seed, "focus").n(3) > 0 {
		p.focus(g)
		return p
	}
	calm := p.world == "memory" || s.one(4)
	for i := range pick(s, 1, 2, 2, 3, 4) {
		p.processes = append(p.processes, g.process(fmt.Sprintf("p%d", i), calm))
	}
	plain := s.n(3) // only faults without tricks, or only tricks, or both
	if !calm && plain < 2 {
		kinds := some(s, 1+s.n(3), g.faults())
		for range 1 + s.n(4) {
			p.faults = append(p.faults, g.fault(p, pick(s, kinds...)))
		}
	}
	if !calm && plain > 0 {
		p.tricks()
	}
	p.crowd()
	return p
}

// redlockNodes is how many nodes the world "redlock" of a seed has.
func redlockNodes(seed uint64) int { return pick(newStream(seed, "nodes"), 3, 3, 5) }

// grammar draws programs.
type grammar struct {
	*stream
	world  string
	seed   uint64
	names  []string
	limits []int           // of each name, when it is a semaphore
	steps  int             // of a goroutine, at the most
	short  bool            // leases are over soon
	ttl    time.Duration   // of all leases; 0: each has its own
	start  time.Duration   // within which the processes start
	holds  time.Duration   // for which locks are held at the most, mostly
	has    map[string]bool // features of this seed

	minority bool // only a minority of the servers fails
}

// newGrammar draws what the programs of a seed have in common: their scales of time, and
// which features of the API they use. What all of them did would seldom let two of the same
// kind meet (swarm testing).
func newGrammar(s *stream, seed uint64, world string) *grammar {
	g := &grammar{stream: s, seed: seed, world: world, has: make(map[string]bool)}
	for range pick(s, 1, 1, 2, 3) {
		g.names = append(g.names, fmt.Sprintf("n%d", len(g.names)))
		g.limits = append(g.limits, 1+s.n(3))
	}
	g.start = pick(s, time.Millisecond, 100*time.Millisecond, 5*time.Second)
	g.holds = pick(s, 10*time.Millisecond, 300*time.Millisecond, 3*time.Second, 20*time.Second)
	g.steps = pick(s, 2, 3, 5)
	g.short = s.one(6)
	g.minority = world == "redlock" && s.one(2)
	return g
}

// feature is true once in n times, if the seed has the feature; half of them have.
func (g *grammar) feature(name string, n int) bool {
	has, drawn := g.has[name]
	if !drawn {
		has = newStream(g.seed, "feature "+name).one(2)
		g.has[name] = has
	}
	return g.one(n) && has
}

func (g *grammar) process(name string, calm bool) *processPlan {
	p := &processPlan{name: name, lives: 1, closes: 1 + g.n(2), start: g.upTo(g.start)}
	if g.feature("cron", 2) {
		p.lives, p.pause = 2+g.n(6), g.between(time.Millisecond, 5*time.Second)
	}
	for range pick(g.stream, 1, 1, 2) {
		var steps []step
		for range 1 + g.n(g.steps) {
			steps = append(steps, g.step(0))
		}
		p.threads = append(p.threads, steps)
	}
	if g.feature("twins", 2) {
		g.twins(p)
	}
	switch {
	case g.feature("poll", 4):
		g.poll(p)
	case g.feature("loop", 2):
		g.loop(p)
	}
	if g.feature("end", 2) || p.lives > 1 {
		p.end = g.between(10*time.Millisecond, time.Minute)
	}
	if p.stays = p.end == 0 && g.feature("stay", 2); p.stays {
		p.keeps = max(g.ttl, 2*time.Second)
	}
	p.dies = p.end > 0 && !calm && g.world != "memory" && g.one(3)
	if g.feature("observer", 2) {
		p.observer = pick(g.stream, "slow", "slow", "panics")
	}
	return p
}

func (g *grammar) step(depth int) step {
	if depth == 0 && g.feature("sleep", 4) {
		s := step{verb: "sleep", hold: g.between(time.Millisecond, 2*g.holds)}
		g.nearBound(&s.hold, g.ttl)
		return s
	}
	if g.feature("ask", 5) {
		s := step{verb: pick(g.stream, "inspect", "inspect", "list", "ping", "break", "break"), names: []string{pick(g.stream, g.names...)}, wait: -1}
		if g.one(3) {
			s.timeout, s.cause = g.between(time.Microsecond, time.Second), pick(g.stream, causes...)
		}
		return s
	}
	s := step{verb: "acquire", wait: -1}
	for _, verb := range []string{"try", "do", "all"} {
		if g.feature(verb, 3) {
			s.verb = verb
		}
	}
	g.kind(&s)
	g.lease(&s)
	g.limitsOf(&s, depth)
	s.hold = g.between(100*time.Microsecond, g.holds)
	if g.one(8) {
		s.hold = g.upTo(2 * min(s.ttl, 20*time.Second))
	}
	g.nearBound(&s.hold, s.ttl)
	if g.feature("extend", 4) {
		g.extend(&s)
	}
	if depth < 2 && g.feature("inner", 3) {
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
	switch {
	case g.feature("shared", 2):
		s.shared = true
	case g.feature("limit", 2):
		if s.shared, s.limit = true, g.limits[i]; g.feature("limits differ", 2) {
			s.limit = 1 + g.n(3)
		}
	}
	s.noReentry = g.feature("no re-entry", 3)
	if g.feature("owner", 3) {
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
		case "memcached", "dynamodb", "nats", "all": // others observe the holder of a dead process all that time
			s.ttl = min(s.ttl, 3*time.Minute)
		case "redis", "redlock": // a released lease may come back with old data
			s.ttl = min(s.ttl, time.Minute)
		}
	case g.feature("long", 3):
		s.ttl = g.between(90*time.Second, 5*time.Minute)
	}
	if s.fixed = g.feature("fixed", 2); s.fixed {
		longest := 30 * time.Second
		if g.world == "memcached" || g.world == "dynamodb" || g.world == "nats" {
			longest = 3 * time.Minute // beyond what the store keeps a queue without tickets
		}
		s.ttl = min(s.ttl, longest)
	}
	g.same(s)
	if g.feature("minimum hold", 6) && g.world != "zookeeper" { // none on a user's connection
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
	if depth == 0 && g.feature("timeout", 2) {
		s.timeout, s.cause = g.between(100*time.Microsecond, 30*time.Second), pick(g.stream, causes...)
	}
}

// causes are what may have ended a caller's context.
var causes = []string{"deadline", "cancelled", "not acquired", "lost", "closed", "other"}

// faults are the kinds of faults of a world.
func (g *grammar) faults() []string {
	if g.world == "sqlite" { // it has no connections
		return []string{"cut", "cut", "suspend", "suspend", "slow", "pause", "down", "full", "full"}
	}
	kinds := []string{"cut", "cut", "suspend", "slow", "reset", "pause", "down", "crash", "full"}
	if g.world == "consul" || g.world == "etcd" || g.world == "zookeeper" {
		kinds = append(kinds, "stale", "stale", "stale", "stale", "hand", "hand")
	}
	switch g.world {
	case "etcd":
		kinds = append(kinds, "stall", "full", "full")
	case "memcached":
		kinds = append(kinds, "crash", "crash")
	}
	if g.world == "redis" {
		kinds = append(kinds, "failover", "failover")
	}
	return kinds
}

// fault draws a fault.
func (g *grammar) fault(p *plan, kind string) faultPlan {
	f := faultPlan{kind: kind, at: g.upTo(pick(g.stream, time.Second, 8*time.Second, 30*time.Second)), lasts: g.between(10*time.Millisecond, 40*time.Second)}
	switch f.kind {
	case "cut", "suspend", "slow", "reset", "stale", "stall":
		f.process = pick(g.stream, p.processes...).name
	case "crash":
		f.lasts = min(f.lasts, 5*time.Second)
	}
	switch g.world {
	case "all", "fallback":
		f.server = g.n(2)
		f.only = f.process != "" && f.kind != "suspend" && g.one(2)
	case "redlock":
		f.server = g.n(redlockNodes(g.seed))
		if f.only = f.process != "" && f.kind != "suspend" && g.one(2); g.minority {
			if f.server = g.n(redlockNodes(g.seed) / 2); f.kind == "suspend" {
				f.kind = "cut"
			}
			f.only, f.harmless = f.process != "", true
		}
	}
	return f
}

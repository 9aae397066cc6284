package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockerproject/locker"
)

// Focused plans are two thirds of all: a few processes, which want one name at about the same time, and a
// fault or two, each at a message of a kind. They cost little, so that many are tried, and they have
// little beside the events that are to meet.

// focus draws a focused plan.
func (p *plan) focus(g *grammar) {
	g.names, g.steps = g.names[:1], 1+g.n(3)
	if p.shape(g) {
		return
	}
	many := []int{2, 2, 3}
	if g.keeps() {
		many = []int{1, 2, 2, 3}
	}
	calm := p.world == "memory" || g.one(4)
	apart := p.world == "redlock" && newStream(g.seed, "apart").one(4)
	if apart {
		many, calm = []int{3, 4}, false
		g.has["limit"], g.limits[0], g.has["shared"] = true, 2, false
	}
	for i := range pick(g.stream, many...) {
		process := g.process(fmt.Sprintf("p%d", i), calm)
		if g.keeps() && process.end == 0 && g.one(3) {
			process.stays, process.keeps = true, max(g.ttl, 2*time.Second)
		}
		p.processes = append(p.processes, process)
	}
	p.eachStep(func(_ *processPlan, s *step) {
		if s.ttl > 0 && g.one(3) { // it is renewed
			s.hold = g.upTo(2 * min(s.ttl, 20*time.Second))
		}
	})
	if last := p.processes[len(p.processes)-1]; g.feature("operator", 2) {
		g.operator(last)
	}
	if calm {
		return
	}
	if apart {
		p.apart(redlockNodes(g.seed), g)
		return
	}
	if g.keeps() && g.one(8) {
		g.abandon(p)
	}
	for range 1 + g.n(3) {
		f := g.aimed(p)
		p.faults = append(p.faults, f)
		if g.one(2) {
			p.faults = append(p.faults, g.companion(f))
		}
	}
}

// keeps reports whether a process of the world keeps alive what it has left behind by mistake, for
// as long as it has another ticket: by a heartbeat, or by a session.
func (g *grammar) keeps() bool {
	switch g.world {
	case "memcached", "dynamodb", "nats", "etcd", "consul", "zookeeper":
		return true
	}
	return false
}

// companion draws a fault that comes with another one: just then, or soon after.
func (g *grammar) companion(of faultPlan) faultPlan {
	f := of
	f.kind = pick(g.stream, append(g.faults(), "leave", "leave", "leave", "leave", "leave", "quit", "die", "lag", "mute", "lose")...)
	f.lasts, f.more, f.only, f.harmless = g.between(10*time.Millisecond, 20*time.Second), nil, false, false
	if g.one(2) {
		f.delay = g.between(time.Millisecond, 5*time.Second)
	}
	switch f.kind {
	case "pause", "down", "crash", "full", "failover":
		f.whole, f.lasts = true, min(f.lasts, 5*time.Second)
	case "stale":
		f.lasts = max(f.lasts, g.between(time.Second, 20*time.Second))
		fallthrough
	default:
		f.whole, f.harmless = false, f.kind == "leave" || f.kind == "quit" || f.kind == "hand"
	}
	return f
}

// aimed draws a fault that begins with a message of a kind.
func (g *grammar) aimed(p *plan) faultPlan {
	f := faultPlan{kind: pick(g.stream, single...), lasts: g.between(10*time.Millisecond, 20*time.Second)}
	f.process = pick(g.stream, p.processes...).name
	if g.one(3) { // something that lasts for longer than a message
		f.kind, f.served = pick(g.stream, append(g.faults(), "reset", "reset", "die", "leave", "leave", "quit", "lag", "mute")...), g.one(2)
	}
	f.on, f.by, f.nth, f.skip = "kind", f.process, g.n(pick(g.stream, 5, 8)), max(0, g.n(6)-3)
	if g.one(4) {
		f.on = pick(g.stream, "write", "read")
	}
	if g.one(3) {
		f.at = g.upTo(20 * time.Second)
	}
	switch f.kind {
	case "pause", "down", "crash", "full", "failover":
		f.whole, f.lasts = true, min(f.lasts, 5*time.Second)
	case "leave", "quit", "hand":
		f.harmless = true
	case "stale": // a query that waits is answered at its end
		f.lasts = max(f.lasts, g.between(time.Second, 20*time.Second))
	case "drop", "deaf", "hold", "keep":
		g.longer(&f)
		if g.one(3) {
			for range 1 + g.n(3) {
				f.more = append(f.more, f.kind)
			}
		}
		if g.one(4) {
			f.more = append(f.more, pick(g.stream, single...))
		}
		return f
	}
	if f.by = pick(g.stream, f.process, pick(g.stream, p.processes...).name); g.world == "all" || g.world == "fallback" || g.world == "redlock" {
		f.server = g.n(2)
		f.only = !f.whole && f.kind != "suspend" && g.one(2)
	}
	if (f.kind == "stale" || f.kind == "cut") && g.one(2) { // just after a process has written
		f.on, f.nth, f.skip, f.served = "write", 0, g.n(4), true
		f.lasts = max(f.lasts, g.between(time.Second, 10*time.Second))
	}
	if g.world == "fallback" && f.kind == "cut" && g.one(2) { // the first store goes away while it is waited for
		f.server, f.only, f.by, f.lasts = 0, true, f.process, g.between(8*time.Second, 30*time.Second)
	}
	if g.minority && f.kind != "die" && f.kind != "leave" && f.kind != "quit" {
		f.ofMinority(g.stream, redlockNodes(g.seed))
	}
	return f
}

// longer makes a message later than requests mostly are: late enough for the store to have forgotten the
// queue, for its caller to have given up, or for others to have written.
func (g *grammar) longer(f *faultPlan) {
	switch {
	case f.kind == "hold" && g.one(3):
		f.lasts = g.between(10*time.Second, g.latest())
	case f.kind != "hold" && g.one(5):
		f.lasts = g.between(locker.DefaultAnswerTimeout, 20*time.Second)
	}
	if (f.kind == "hold" || f.kind == "keep") && g.one(2) {
		f.writes, f.lasts = 1+g.n(4), max(f.lasts, time.Second)
	}
}

// abandon has a request arrive long after its caller has left, and after the core has looked for it, while
// others hold, wait, and write nothing.
func (g *grammar) abandon(p *plan) {
	late := pick(g.stream, p.processes...)
	late.stays, late.keeps, late.end, late.dies, late.lives = true, max(g.ttl, 2*time.Second), 0, false, 1
	f := faultPlan{
		kind: "hold", lasts: g.between(32*time.Second, mostLag), process: late.name, by: late.name,
		on: "write", skip: g.n(3), more: pick(g.stream, nil, nil, []string{"drop"}),
	}
	p.faults = append(p.faults, f)
	left := g.companion(f)
	left.kind, left.whole, left.harmless, left.delay = "leave", false, true, g.between(time.Millisecond, time.Second)
	p.faults = append(p.faults, left)
	for _, other := range p.processes {
		if s := &other.threads[0][0]; other != late && s.ttl > 0 && g.one(2) {
			s.hold = f.lasts + g.upTo(20*time.Second)
		}
	}
}

// operator has a process break what it finds.
func (g *grammar) operator(p *processPlan) {
	p.threads = [][]step{nil}
	for range 1 + g.n(3) {
		p.threads[0] = append(p.threads[0], step{verb: "sleep", hold: g.between(time.Millisecond, g.holds)}, step{verb: "break", names: g.names[:1], wait: -1})
	}
}

// latest is how late a request may arrive, at the most.
func (g *grammar) latest() time.Duration {
	if g.keeps() { // their drivers have to be safe from late requests for ever
		return mostLag
	}
	return 20 * time.Second // the core looks for late tickets for half a minute
}

// twins has a second goroutine of a process ask for the same as the first, under the same owner.
func (g *grammar) twins(p *processPlan) {
	first := &p.threads[0][0]
	if first.ttl == 0 {
		return
	}
	if first.verb == "all" {
		first.verb, first.names = "acquire", first.names[:1]
	}
	first.owner, first.noReentry = "twins", false
	second := g.step(0)
	for second.ttl == 0 {
		second = g.step(0)
	}
	if second.verb == "all" {
		second.verb = "acquire"
	}
	second.names, second.shared, second.limit = first.names, first.shared, first.limit
	second.owner, second.noReentry = first.owner, false
	if g.one(2) { // the same function
		second.ttl = first.ttl
	}
	if second.ttl < shortTTL && second.wait < 0 { // else it may ask for ever: see limitsOf
		second.wait = time.Minute
	}
	var steps []step
	if g.one(2) {
		steps = append(steps, step{verb: "sleep", hold: g.between(time.Millisecond, 2*g.holds)})
	}
	p.threads = append(p.threads[:1], append(steps, second))
}

// once is what becomes of one message.
type once struct {
	kind   string
	lasts  time.Duration
	writes int // it is late until so many other writes have been done, if that is sooner; 0: not
}

func (o *once) is(kind string) bool { return o != nil && o.kind == kind }

// late returns by how much a message is late.
func (o *once) late(kind string) time.Duration {
	if o.is(kind) {
		return o.lasts
	}
	return 0
}

// kinds are the kinds of messages of each process, in the order in which it has first sent one.
type kinds map[string][]string

// of returns the number of a message's kind, from 1 on.
func (k kinds) of(process, what string) int {
	kind := kindOfMessage(what)
	for i, known := range k[process] {
		if known == kind {
			return i + 1
		}
	}
	k[process] = append(k[process], kind)
	return len(k[process])
}

// kindOfMessage is the verb of a message, or the script, or the method and the beginning of the path.
func kindOfMessage(what string) string {
	if strings.HasPrefix(what, "*") { // of Redis
		lines := strings.SplitN(what, "\r\n", 6) // their number, and the length of each before it
		if len(lines) > 5 && strings.EqualFold(lines[2], "EVALSHA") {
			return lines[4]
		}
		if len(lines) > 3 {
			return lines[2]
		}
	}
	verb, rest, _ := strings.Cut(what, " ")
	if strings.HasPrefix(rest, "/") {
		path, _, _ := strings.Cut(rest, " ")
		path, _, _ = strings.Cut(path, "?")
		parts := strings.Split(path, "/")
		verb += strings.Join(parts[:min(len(parts), 4)], "/")
	}
	return verb + purposeOf(rest)
}

// purposes are parts of messages that tell what they are for: which document of package casqueue,
// which operations of a transaction of etcd or Consul, and which queries of Consul wait.
var purposes = []string{":q:", ":h:", ":n:", "put:", "delete:", `"Verb":"lock"`, `"Verb":"unlock"`, `"Verb":"delete"`, `[{"KV":{"Verb":"get-or-empty"`, "index="}

// purposeOf are the purposes of a message.
func purposeOf(what string) (all string) {
	for _, p := range purposes {
		if strings.Contains(what, p) {
			all += " " + p
		}
	}
	return all
}

// apart has each process reach a majority of the nodes of Redlock, and each another one.
func (p *plan) apart(nodes int, g *grammar) {
	for i, process := range p.processes {
		for j := range nodes / 2 {
			p.faults = append(p.faults, faultPlan{kind: "cut", lasts: g.between(5*time.Second, time.Minute), process: process.name, server: (i + j) % nodes, only: true, on: "kind", by: process.name})
		}
	}
}

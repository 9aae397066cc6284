package sim

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/driver/redlock"
)

var traced = flag.Bool("messages", false, "sim: print all messages of the run")

// lying makes the drivers of the world "memory", in the tests of the oracles.
var lying func() driver.Driver

// outcome is what a run has shown.
type outcome struct {
	broken []string // the violations
	trace  func(lines int) string
	grants int
	calls  int
}

// run runs a plan in a bubble.
func run(t *testing.T, p *plan) (out outcome) {
	w := &world{seed: p.seed, used: make(map[int64]bool), names: make(map[string]string)}
	if slices.ContainsFunc(p.faults, func(f faultPlan) bool { return f.on == "kind" }) {
		w.kinds = make(kinds)
	}
	out.trace = w.trace
	defer func() {
		if r := recover(); r != nil { // the bubble cannot end
			w.broken = append(w.broken, fmt.Sprint("goroutines are left: ", r))
		}
		out.broken = w.broken
		for _, f := range w.done {
			f()
		}
	}()
	synctest.Test(t, func(*testing.T) {
		w.begun, w.checked, w.stopped = time.Now(), make(chan struct{}), make(chan struct{})
		r := &runner{w: w, o: newOracle(w), plan: p}
		if r.shortest() >= time.Second { // shorter ones are renewed that often
			w.busy.begin()
		}
		w.pushed = r.o.pushed
		r.run()
		out.calls = len(r.o.calls)
		for _, holds := range r.o.holds {
			out.grants += len(holds)
		}
	})
	return out
}

// runner is one run.
type runner struct {
	w    *world
	o    *oracle
	plan *plan

	mu        sync.Mutex
	processes []*process // all lives of all
}

func (r *runner) run() {
	r.build()
	if !newStream(r.w.seed, "patience").one(16) {
		r.w.busy.limit(r.w.sessions > 0)
	}
	r.o.longest = r.longest()
	var faults, processes, lives sync.WaitGroup // processes: until they only stay
	for i, f := range r.plan.faults {
		faults.Go(func() { r.fault(f, newStream(r.w.seed, fmt.Sprint("fault ", i))) })
	}
	for _, p := range r.plan.processes {
		processes.Add(1)
		busy := sync.OnceFunc(processes.Done)
		lives.Go(func() {
			defer busy()
			live(r.w, r.o, p, busy, r.opened)
		})
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-r.w.stopped:
			r.o.cutOff()
			r.end()
		case <-done:
		}
	}()
	r.wait(&processes)
	r.wait(&faults)
	if len(r.w.broken) == 0 && !r.w.isStopped() {
		r.check(&lives)
	}
	r.end()
	lives.Wait()
	time.Sleep(time.Minute) // slow observers may outlive their Client
	r.o.review()
}

// wait waits for what must end by itself.
func (r *runner) wait(all *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		all.Wait()
		close(done)
	}()
	most := min(3*time.Hour+2*r.o.longest, 12*time.Hour) // a lock that is never released costs its renewals
	select {
	case <-done:
	case <-time.After(most):
		r.w.fail("after %v something has not come back: %s", most, r.stuck())
		r.end()
		<-done
	}
}

// stuck names the calls that have not come back.
func (r *runner) stuck() string {
	r.o.mu.Lock()
	defer r.o.mu.Unlock()
	var all []string
	for _, c := range r.o.calls {
		if c.ended.IsZero() && !c.p.isDead() {
			all = append(all, fmt.Sprintf("%s %v since %v", c.t.name, c.s, c.begun.Sub(r.w.begun)))
		}
	}
	return strings.Join(all, "; ")
}

func (r *runner) opened(p *process) {
	r.mu.Lock()
	r.processes = append(r.processes, p)
	r.mu.Unlock()
	if r.w.isStopped() {
		r.end()
	}
}

// end ends what is left of all processes.
func (r *runner) end() {
	r.mu.Lock()
	all := slices.Clone(r.processes)
	r.mu.Unlock()
	for _, p := range all {
		p.die()
		p.closeClient()
	}
	for _, s := range r.w.servers {
		if m, ok := s.model.(interface{ close() }); ok {
			m.close()
		}
	}
}

// build makes the servers.
func (r *runner) build() {
	w := r.w
	add := func(kind string) (open func(string) (driver.Driver, *path, error)) {
		s := &server{w: w, name: fmt.Sprintf("%s%d", kind, len(w.servers))}
		w.servers = append(w.servers, s)
		switch kind {
		case "bank":
			s.model, w.late = newBank(s), max(w.late, 300*time.Millisecond)
			return func(p string) (driver.Driver, *path, error) { return openBank(s, p) }
		case "memcached":
			w.watched = true
			s.model, w.late = newCache(s), max(w.late, 500*time.Millisecond)
			return func(p string) (driver.Driver, *path, error) { return openCache(s, p) }
		case "dynamodb":
			w.watched = true
			s.model, w.late = newTable(s), max(w.late, 700*time.Millisecond)
			return func(p string) (driver.Driver, *path, error) { return openTable(s, p) }
		case "nats":
			w.watched = true
			s.model, w.late = newBucket(s), max(w.late, 700*time.Millisecond)
			return func(p string) (driver.Driver, *path, error) { return openBucket(s, p) }
		case "consul":
			w.sessions = 10 * time.Second
			s.model, w.late = newConsul(s), max(w.late, 400*time.Millisecond)
			return func(p string) (driver.Driver, *path, error) { return openConsul(s, p) }
		case "etcd":
			w.sessions = 2 * time.Second
			s.model, w.late = newCluster(s), max(w.late, 400*time.Millisecond)
			return func(p string) (driver.Driver, *path, error) { return openCluster(s, p) }
		case "zookeeper":
			z := newEnsemble(s)
			w.sessions, w.most = z.timeout, min(leaseOfZK(z.timeout), leaseOfZK(10*time.Second)) // a driver that has no session yet takes it for one of ten seconds
			s.model, w.late, w.inTurn = z, max(w.late, 400*time.Millisecond), true
			return func(p string) (driver.Driver, *path, error) { return openEnsemble(s, p) }
		case "postgres":
			d := newDatabase(s)
			s.model, w.drift, w.late = d, max(0, d.rate-1), max(w.late, 500*time.Millisecond)
			w.liveness = 4 * time.Second // of the driver, unless it is told another one
			w.unheard = newStream(w.seed, "listen").one(2)
			return func(p string) (driver.Driver, *path, error) { return openDatabase(s, p) }
		case "mysql":
			d := newInnoDB(s)
			s.model, w.drift, w.late = d, max(0, d.rate-1), max(w.late, d.late())
			w.liveness = 4 * time.Second // of the driver, unless it is told another one
			w.unheard = true             // it is no driver.LossNotifier
			return func(p string) (driver.Driver, *path, error) { return openInnoDB(s, p) }
		case "sqlite":
			d := newDisk(s)
			if d.piped == "lossy" && r.shortest() < time.Second { // a grant of which a heartbeat hears may be over, and its waiter learns that after ten
				d.piped = ""
			}
			s.model, w.late = d, max(w.late, d.late())
			w.liveness = sqliteLiveness
			w.unheard = d.piped != ""
			return func(p string) (driver.Driver, *path, error) { return openDisk(s, p) }
		case "redis":
			n := newNode(s)
			s.model, w.drift, w.late = n, max(0, n.rate-1), max(w.late, 300*time.Millisecond)
			w.liveness, w.relistens = 3*time.Second, true
			return func(p string) (driver.Driver, *path, error) { return openRedis(s, p) }
		}
		panic("sim: no world " + kind)
	}
	one := func(open func(string) (driver.Driver, *path, error)) {
		w.open = func(p string) (driver.Driver, []*path, error) {
			d, way, err := open(p)
			return d, []*path{way}, err
		}
	}
	two := func(first, second string, join func(process string, a, b driver.Driver) driver.Driver) {
		a, b := add(first), add(second)
		w.open = func(p string) (driver.Driver, []*path, error) {
			d1, p1, err := a(p)
			if err != nil {
				return nil, nil, err
			}
			d2, p2, err := b(p)
			if err != nil {
				return nil, nil, err
			}
			return join(p, d1, d2), []*path{p1, p2}, nil
		}
	}
	switch r.plan.world {
	case "memory":
		m := memory.New()
		w.late = time.Millisecond
		w.open = func(string) (driver.Driver, []*path, error) {
			if lying != nil {
				return lying(), nil, nil
			}
			return m.Join(), nil, nil
		}
	case "all":
		r.all(two)
		w.late = 2 * w.late
	case "redlock":
		for i := range redlockNodes(w.seed) {
			w.servers = append(w.servers, &server{w: w, name: fmt.Sprint("redlock", i)})
		}
		newNodes(w.servers)
		w.late, w.slow = 500*time.Millisecond, 2*redlock.DefaultTimeout
		w.open = func(p string) (driver.Driver, []*path, error) { return openRedlock(w.servers, p) }
	case "fallback":
		w.hasSecond = true
		two("bank", "bank", w.fallback)
	default:
		w.exact = r.plan.world == "bank"
		one(add(r.plan.world))
	}
}

// fault does one fault.
func (r *runner) fault(f faultPlan, rnd *stream) {
	r.w.sleep(f.at)
	var until time.Time
	begin := func() {
		until = r.w.unique(time.Now().Add(f.lasts))
		r.begin(f, until)
	}
	switch {
	case f.on == "":
		begin()
	case f.delay > 0:
		if !r.w.arm(f, func() {}) {
			return
		}
		r.w.sleep(f.delay)
		begin()
	case !r.w.arm(f, begin):
		return
	}
	r.w.sleep(time.Until(until))
	r.w.step("%v is over", f)
	if f.kind == "cut" && rnd.one(2) {
		r.each(f.process, func(p *path) {
			if !f.only || p.s == r.w.servers[f.server] {
				p.reset()
			}
		})
	}
}

// begin begins a fault.
func (r *runner) begin(f faultPlan, until time.Time) {
	r.w.step("FAULT %v", f)
	whom := f.process
	if f.whole {
		whom = ""
	}
	if !f.harmless {
		if f.kind == "reset" && r.w.relistens { // it is over when it begins
			until = time.Now()
		}
		r.w.fault(f.kind, whom, until)
		if whom == "" && !f.whole || f.only {
			r.w.faultOf(f.server % len(r.w.servers))
		}
	}
	switch {
	case slices.Contains(single, f.kind): // it concerns the message that it has waited for
	case slices.Contains(tricks, f.kind):
		r.trick(f, until)
	case f.kind == "die" || f.kind == "quit" || f.kind == "leave":
		r.ends(f.process, f.kind)
	case f.kind == "hand":
		r.byHand(r.w.servers[0], newStream(r.w.seed, fmt.Sprint("hand ", f.on, f.nth, f.skip, f.at)))
	case whom != "":
		r.faultOf(f, until)
	default:
		r.faultAt(r.w.servers[f.server%len(r.w.servers)], f, until)
	}
}

// faultOf does a fault of a process.
func (r *runner) faultOf(f faultPlan, until time.Time) {
	r.each(f.process, func(p *path) {
		if f.only && p.s != r.w.servers[f.server] {
			return
		}
		if f.kind == "reset" {
			p.reset()
			return
		}
		if f.kind == "stale" && p.deposed != nil {
			defer p.deposed()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		switch f.kind {
		case "slow":
			p.slow = latest(p.slow, until)
		case "stale":
			p.stale = latest(p.stale, until)
		case "stall":
			p.stalled = time.Now()
		default:
			p.cut = latest(p.cut, until)
		}
	})
	if f.kind == "suspend" {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range r.processes {
			if p.name == f.process {
				p.suspend(until)
			}
		}
	}
}

// faultAt does a fault of a server.
func (r *runner) faultAt(s *server, f faultPlan, until time.Time) {
	if f.kind == "crash" && s.model.restart() {
		s.mu.Lock()
		s.lost = append(s.lost, time.Now(), until)
		s.mu.Unlock()
	}
	if n, ok := s.model.(*node); ok && f.kind == "failover" {
		n.failover()
	}
	s.mu.Lock()
	switch f.kind {
	case "crash":
		s.down = time.Now().Add(f.lasts * 3 / 4) // and then it reads its data
		s.starting = until
	case "failover": // the connections stay with the old primary
		s.lost = append(s.lost, time.Now())
	case "pause":
		s.paused = latest(s.paused, until)
	case "full":
		s.full = latest(s.full, until)
	default:
		s.down = latest(s.down, until)
	}
	paths := slices.Clone(s.paths)
	s.mu.Unlock()
	if f.kind == "crash" || f.kind == "down" {
		for _, p := range paths {
			p.reset()
		}
	}
}

// each calls f with the ways of a process to all servers.
func (r *runner) each(process string, f func(*path)) {
	for _, s := range r.w.servers {
		s.mu.Lock()
		paths := slices.Clone(s.paths)
		s.mu.Unlock()
		for _, p := range paths {
			if p.process == process {
				f(p)
			}
		}
	}
}

// nodesAsked is how long a process of Redlock may take to remove a ticket from a node that is back: it asks each second.
const nodesAsked = 5 * time.Second

// check checks, after the last fault, that every name can be had, and that nothing is left
// when also those processes have ended that have stayed.
func (r *runner) check(lives *sync.WaitGroup) {
	w := r.w
	w.step("CHECK")
	if w.slow > 0 {
		w.sleep(nodesAsked)
	}
	r.o.comeBack()
	plan := &processPlan{name: "checker", closes: 1}
	p, err := newProcess(w, r.o, plan, 0)
	if err != nil {
		w.fail("checker: %v", err)
		return
	}
	r.opened(p)
	b := driver.BoundsOf(p.d, r.o.longest)
	bound := b.Crash + b.Liveness + recovery
	if w.most > 0 { // they say nothing of a lease that its process renews and nobody releases
		bound += r.o.longest
	}
	r.free(p, r.names(), bound)
	close(w.checked)
	r.wait(lives)
	r.free(p, r.kept(), bound)
	r.settle()
	w.sleep(b.Crash + time.Minute + recovery)
	for _, name := range r.names() {
		q, err := p.client.Inspect(context.Background(), name)
		if w.isStopped() {
			return
		}
		if err != nil || len(q.Tickets) > 0 {
			w.fail("the queue of %s is not empty in the end: %v, %+v", name, err, q.Tickets)
		}
	}
	for _, s := range w.servers {
		if left := s.model.leftovers(); len(left) > 0 {
			w.fail("%s still has %v", s.name, left)
		}
	}
	p.close()
}

// free checks that names are free, within bound of the end of what concerns everybody: a process that stays may still meet a fault of
// one message, and have the file of SQLite locked meanwhile.
func (r *runner) free(p *process, names []string, bound time.Duration) {
	w := r.w
	for _, name := range names {
		begun := time.Now()
		acquire := func() (*locker.Lock, error) {
			return p.client.Acquire(context.Background(), name, locker.WithTTL(10*time.Second), locker.WithWait(bound))
		}
		k, err := acquire()
		for errors.Is(err, locker.ErrUnavailable) && w.concernsAll(begun) {
			begun = time.Now()
			k, err = acquire()
		}
		if w.isStopped() {
			return // the checker was closed, too
		}
		if err != nil {
			q, _ := p.client.Inspect(context.Background(), name)
			w.fail("%s was not free within %v after all had ended (the longest lease was %v): %v; queue: %+v", name, bound, r.o.longest, err, q.Tickets)
			continue
		}
		w.step("checker has %s after %v", name, time.Since(begun))
		r.o.free(name, begun)
		begun = time.Now()
		if err := k.Release(context.Background()); err != nil && !w.isStopped() && !w.concernsAll(begun) { // else it goes on
			w.fail("checker: release: %v", err)
		}
	}
}

// kept returns the names that processes hold while they stay.
func (r *runner) kept() (names []string) {
	for _, p := range r.plan.processes {
		if p.stays {
			names = append(names, p.kept())
		}
	}
	return names
}

// names returns all names that the plan may use.
func (r *runner) names() (names []string) {
	r.plan.eachStep(func(_ *processPlan, s *step) { names = append(names, s.names...) })
	slices.Sort(names)
	return slices.Compact(names)
}

// longest returns the longest lease of the plan.
func (r *runner) longest() (longest time.Duration) {
	for _, p := range r.plan.processes {
		longest = max(longest, p.keeps)
	}
	r.plan.eachStep(func(_ *processPlan, s *step) { longest = max(longest, s.ttl, s.minHold, s.extend, s.extendToo) })
	return min(longest, math.MaxInt64/4)
}

// shortest returns the shortest lease of the plan.
func (r *runner) shortest() time.Duration {
	shortest := time.Duration(math.MaxInt64)
	r.plan.eachStep(func(_ *processPlan, s *step) {
		if s.ttl > 0 {
			shortest = min(shortest, s.ttl)
		}
	})
	return shortest
}

// eachStep calls f with each step of a plan.
func (p *plan) eachStep(f func(*processPlan, *step)) {
	for _, process := range p.processes {
		var walk func([]step)
		walk = func(steps []step) {
			for i := range steps {
				f(process, &steps[i])
				walk(steps[i].inner)
			}
		}
		for _, steps := range process.threads {
			walk(steps)
		}
	}
}

package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// process is one life of a process: from the opening of its Client to its end.
type process struct {
	w    *world
	o    *oracle
	plan *processPlan
	name string
	rnd  *stream

	d      driver.Driver
	paths  []*path
	client *locker.Client
	ctx    context.Context // ends when the process dies
	die    context.CancelFunc
	quits  chan struct{} // closed when it is to end
	quit   func()

	mu        sync.Mutex
	calls     []*call
	naps      []nap
	suspended time.Time // until then it does nothing
	closing   time.Time // when Close was called
	closed    time.Time // when it returned
	died      time.Time
}

// newProcess opens a Client for a process.
func newProcess(w *world, o *oracle, plan *processPlan, life int) (*process, error) {
	p := &process{w: w, o: o, plan: plan, name: plan.name, quits: make(chan struct{}), rnd: newStream(w.seed, fmt.Sprint("process ", plan.name, life))}
	var err error
	if p.d, p.paths, err = w.open(p.name); err != nil {
		return nil, err
	}
	p.ctx, p.die = context.WithCancel(context.Background())
	p.quit = sync.OnceFunc(func() { close(p.quits) })
	opts := []locker.ClientOption{locker.WithObserver(o.observe(p))}
	switch plan.observer {
	case "slow":
		opts = append(opts, locker.WithObserver(func(ctx context.Context, _ locker.Event) { p.nap(ctx, p.rnd.between(time.Millisecond, 20*time.Second)) }))
	case "panics":
		opts = append(opts, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if (e.Kind == locker.EventAcquired || e.Kind == locker.EventFailed || e.Kind == locker.EventWaiting) && p.rnd.one(3) {
				panic(errObserver)
			}
		}))
	}
	p.client = locker.New(p.d, opts...)
	return p, nil
}

var errObserver = errors.New("the observer panics")

// live runs a process through all its lives. Idle is called when it only stays.
func live(w *world, o *oracle, plan *processPlan, idle func(), each func(*process)) {
	w.sleep(plan.start)
	for life := range plan.lives {
		p, err := newProcess(w, o, plan, life)
		if err != nil {
			w.fail("%s cannot open: %v", plan.name, err)
			return
		}
		each(p)
		w.step("%s starts (life %d)", p.name, life+1)
		p.run(idle)
		w.sleep(plan.pause + time.Microsecond)
	}
}

// run runs the threads, and ends the process at its time.
func (p *process) run(idle func()) {
	if p.plan.stays {
		go p.keep()
	}
	var threads sync.WaitGroup
	for i, steps := range p.plan.threads {
		t := &thread{p: p, name: fmt.Sprintf("%s.%d", p.name, i)}
		threads.Go(func() { t.all(p.ctx, steps) })
	}
	done := make(chan struct{})
	go func() {
		threads.Wait()
		close(done)
	}()
	end := make(<-chan time.Time)
	if p.plan.end > 0 {
		end = time.After(time.Until(p.w.unique(time.Now().Add(p.plan.end))))
	}
	select {
	case <-done:
		if p.plan.stays {
			idle()
			p.stay()
		}
	case <-end:
	case <-p.quits:
	}
	if p.isDead() {
		return // its goroutines end in their own time
	}
	if p.plan.dies {
		p.kill()
		return
	}
	p.close()
	<-done
}

// stay waits until others have had all names.
func (p *process) stay() {
	select {
	case <-p.w.checked:
	case <-p.ctx.Done():
	case <-p.quits:
	}
}

// kept is the name that a process holds that stays.
func (p *processPlan) kept() string { return "kept-" + p.name }

// keep holds a lock that nobody else wants, for as long as the process stays.
func (p *process) keep() {
	defer p.recovers("keep")
	k, err := p.client.Acquire(p.ctx, p.plan.kept(), locker.WithTTL(p.plan.keeps), locker.WithWait(time.Second))
	p.stay()
	if err == nil {
		_ = k.Release(p.ctx)
	}
}

// leave ends the contexts of all calls.
func (p *process) leave() {
	p.mu.Lock()
	all := slices.Clone(p.calls)
	p.mu.Unlock()
	for _, c := range all {
		p.w.step("%s leaves", c.t.name)
		c.leave(causeOf[c.s.cause])
	}
}

// kill ends the process as SIGKILL does.
func (p *process) kill() {
	p.w.step("%s dies", p.name)
	p.mu.Lock()
	p.died = time.Now()
	p.mu.Unlock()
	for _, path := range p.paths {
		path.kill()
	}
	p.o.dead(p)
	p.die()
	go p.closeClient()
}

// closeClient ends what is left of a process that has died. Nothing of it reaches a server.
func (p *process) closeClient() { _ = p.client.Close() }

// close closes the Client, perhaps from several goroutines.
func (p *process) close() {
	p.waitAwake()
	p.w.step("%s closes", p.name)
	begun := time.Now()
	p.mu.Lock()
	p.closing = begun
	p.mu.Unlock()
	var all sync.WaitGroup
	for range p.plan.closes {
		all.Go(func() {
			defer p.recovers("close")
			err := p.client.Close()
			p.w.step("%s closed: %v", p.name, err)
			p.o.answered(p, "close", begun, begun.Add(locker.DefaultReleaseTimeout+150*time.Millisecond), err)
		})
	}
	all.Wait()
	p.mu.Lock()
	p.closed = time.Now()
	p.mu.Unlock()
	p.o.closed(p)
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.died.IsZero()
}

func (p *process) isClosing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closing.IsZero()
}

// suspend stops the process for a while.
func (p *process) suspend(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.suspended = until
}

// nap is the time that a slow observer takes, for the event of a call.
type nap struct {
	c        *call // nil: of none that is known
	from, to time.Time
}

// nap has an observer take that long.
func (p *process) nap(ctx context.Context, d time.Duration) {
	c, _ := ctx.Value(callKey{}).(*call)
	now := time.Now()
	p.mu.Lock()
	p.naps = append(p.naps, nap{c, now, now.Add(d)})
	p.mu.Unlock()
	p.w.sleep(d)
}

// hasSlept reports whether the process has stood still, or was slow, since then.
func (p *process) hasSlept(since time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.naps, func(n nap) bool { return n.to.After(since) })
}

// napped reports whether the observers of other calls with the same owner have taken as long, in the time of a call, as
// the store may take for an answer, or all of them as long as the call has. left is when its caller has left.
func (p *process) napped(c *call, left time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	others, all := time.Second, time.Second // messages
	for _, n := range p.naps {
		if n.c != nil && n.c.s.owner != c.s.owner || !n.to.After(c.begun) {
			continue
		}
		taken := n.to.Sub(latest(n.from, c.begun))
		if all += taken; n.c != c {
			others += taken
		}
	}
	over := c.s.wait >= 0 && all > c.s.wait || c.s.timeout > 0 && all > c.s.timeout || !left.IsZero() && all > left.Sub(c.begun)
	return c.s.owner != "" && (others > locker.DefaultAnswerTimeout || over)
}

// observed is how long the observers of a call have taken before its end; zero: it had none. Between two names of a group
// nobody asks the store for that long.
func (p *process) observed(c *call, over time.Time) (taken time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.naps {
		switch {
		case n.c != c:
		case over.IsZero() || n.to.Before(over):
			taken += n.to.Sub(n.from)
		case n.from.Before(over):
			taken += over.Sub(n.from)
		}
	}
	return taken
}

// waitAwake waits while the process is suspended.
func (p *process) waitAwake() {
	for {
		p.mu.Lock()
		left := time.Until(p.suspended)
		p.mu.Unlock()
		if left <= 0 {
			return
		}
		p.w.sleep(left)
	}
}

// recovers recovers from the panic of an observer, as a server that logs it would.
func (p *process) recovers(what string) {
	if r := recover(); r != nil {
		if r != errObserver { //nolint:errorlint // a value of recover
			panic(r)
		}
		p.w.step("%s %s: panicked", p.name, what)
	}
}

// thread is one goroutine of a process.
type thread struct {
	p    *process
	name string
}

// all runs steps one after the other.
func (t *thread) all(ctx context.Context, steps []step) {
	for i := range steps {
		t.p.waitAwake()
		if t.p.isDead() {
			return
		}
		t.step(ctx, &steps[i])
		t.p.w.sleep(time.Microsecond)
	}
}

func (t *thread) step(parent context.Context, s *step) {
	if s.verb == "sleep" {
		t.pause(parent, s.hold)
		return
	}
	ctx, cancel := t.context(parent, s)
	ctx, leave := context.WithCancelCause(ctx)
	defer leave(nil)
	defer cancel()
	c := t.p.o.begin(ctx, t, s)
	c.leave = leave
	t.p.mu.Lock()
	t.p.calls = append(t.p.calls, c)
	t.p.mu.Unlock()
	defer func() {
		t.p.mu.Lock()
		defer t.p.mu.Unlock()
		t.p.calls = slices.DeleteFunc(t.p.calls, func(other *call) bool { return other == c })
	}()
	t.p.w.step("%s %v", t.name, s)
	panicked := true
	func() {
		defer t.p.recovers(s.verb)
		t.call(context.WithValue(ctx, callKey{}, c), c)
		panicked = false
	}()
	if panicked {
		t.p.o.panicked(c)
	}
}

// callKey is the key of the call in its context.
type callKey struct{}

// call makes the call of a step.
func (t *thread) call(ctx context.Context, c *call) {
	s, client := c.s, t.p.client
	switch s.verb {
	case "inspect":
		q, err := client.Inspect(ctx, s.names[0])
		t.p.o.inspected(c, q, err)
		t.p.o.ended(c, err)
	case "list":
		_, err := client.List(ctx)
		t.p.o.ended(c, err)
	case "ping":
		t.p.o.ended(c, client.Ping(ctx))
	case "break":
		t.breakOne(ctx, c)
	case "acquire":
		k, err := client.Acquire(ctx, s.names[0], s.options()...)
		t.hold(ctx, c, k, err)
	case "try":
		k, err := client.TryAcquire(ctx, s.names[0], s.options()...)
		t.hold(ctx, c, k, err)
	case "all":
		k, err := locker.AcquireAll(ctx, client, s.names, s.options()...)
		t.hold(ctx, c, k, err)
	case "do":
		ran := false
		err := locker.Do(ctx, client, s.names[0], func(ctx context.Context) error {
			k, _ := locker.FromContext(ctx)
			ran = true
			t.p.o.acquired(c, k)
			t.held(ctx, c, k)
			t.p.o.releasing(c)
			return nil
		}, s.options()...)
		if ran {
			t.p.o.released(c, err)
		} else {
			t.p.o.ended(c, err)
		}
	}
}

// breakOne breaks a ticket of a queue.
func (t *thread) breakOne(ctx context.Context, c *call) {
	name := c.s.names[0]
	var tokens []uint64
	var err error
	if tokens = t.p.o.tokens(name); len(tokens) == 0 || t.p.rnd.one(2) {
		var q locker.Queue
		if q, err = t.p.client.Inspect(ctx, name); err == nil {
			t.p.o.inspected(c, q, nil)
			tokens = nil
			for _, ticket := range q.Tickets {
				tokens = append(tokens, ticket.Token)
			}
		}
	}
	if err == nil && len(tokens) > 0 {
		token := pick(t.p.rnd, tokens...)
		t.p.w.step("%s breaks %s %d", t.name, name, token)
		t.p.o.breaks(name, token)
		before := t.p.w.has(name, token)
		err = t.p.client.Break(ctx, name, token)
		t.p.o.brokeOne(c, token, before, err)
		if err == nil {
			t.p.o.mustLearn(name, token)
		}
	}
	t.p.o.ended(c, err)
}

// hold does what the step wants while it holds the lock, and releases it.
func (t *thread) hold(ctx context.Context, c *call, k *locker.Lock, err error) {
	if err != nil {
		t.p.o.ended(c, err)
		return
	}
	t.p.o.acquired(c, k)
	t.held(k.Context(context.WithoutCancel(ctx)), c, k)
	if c.s.release == "never" {
		return
	}
	t.p.waitAwake()
	rctx := t.p.ctx
	if c.s.release == "cancelled" {
		over, cancel := context.WithCancel(rctx)
		cancel()
		rctx = over
	}
	t.p.o.releasing(c)
	err = k.Release(rctx)
	t.p.o.released(c, err)
	if c.s.release == "twice" {
		if again := k.Release(rctx); !errors.Is(again, locker.ErrReleased) && !errors.Is(again, locker.ErrLost) {
			t.p.w.fail("%s: a second release of %s: %v", t.name, c.s.names[0], again)
		}
	}
}

// held is what is done while the lock is held.
func (t *thread) held(ctx context.Context, c *call, k *locker.Lock) {
	t.extend(c, k)
	t.all(ctx, c.s.inner)
	t.pause(ctx, c.s.hold)
	t.p.waitAwake()
}

// extend extends the lease of a lock, perhaps from two goroutines at once.
func (t *thread) extend(c *call, k *locker.Lock) {
	var all sync.WaitGroup
	for _, d := range []time.Duration{c.s.extend, c.s.extendToo} {
		if d == 0 {
			continue
		}
		all.Go(func() {
			begun := time.Now()
			err := k.Extend(t.p.ctx, d)
			t.p.w.step("%s extend %v: %v", t.name, d, err)
			t.p.o.extended(c, begun, d, err)
		})
		t.p.w.sleep(time.Microsecond)
	}
	all.Wait()
}

// pause waits, at the most until ctx ends.
func (t *thread) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(time.Until(t.p.w.unique(time.Now().Add(d))))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		t.p.w.sleep(time.Microsecond)
	}
}

// context makes the caller's context.
func (t *thread) context(parent context.Context, s *step) (context.Context, context.CancelFunc) {
	if s.timeout == 0 {
		return context.WithCancel(parent)
	}
	if s.cause == "deadline" {
		return context.WithDeadline(parent, t.p.w.unique(time.Now().Add(s.timeout)))
	}
	ctx, cancel := context.WithCancelCause(parent)
	timer := time.AfterFunc(time.Until(t.p.w.unique(time.Now().Add(s.timeout))), func() { cancel(causeOf[s.cause]) })
	return ctx, func() {
		timer.Stop()
		cancel(nil)
	}
}

// causeOf has the causes with which contexts end; nil is context.Canceled.
var causeOf = map[string]error{
	"not acquired": locker.ErrNotAcquired, "lost": locker.ErrLost, "closed": locker.ErrClosed, "other": errors.New("the caller has gone"),
}

// options are the step's options.
func (s *step) options() []locker.Option {
	opts := []locker.Option{locker.WithTTL(s.ttl), nil}
	add := func(yes bool, o locker.Option) {
		if yes {
			opts = append(opts, o)
		}
	}
	add(s.shared && s.limit == 0, locker.Shared())
	add(s.limit > 0, locker.Limit(s.limit))
	add(s.fixed, locker.WithoutRenewal())
	add(s.minHold > 0, locker.WithMinHold(s.minHold))
	add(s.wait >= 0, locker.WithWait(s.wait))
	add(s.owner != "", locker.WithOwner(s.owner))
	add(s.noReentry, locker.WithoutReentry())
	return opts
}

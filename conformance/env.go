package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// Times of the suite. All upper bounds that it holds a driver to are the
// driver's own, or the contract's, plus slack.
const (
	// slack is what a loaded machine with two processors, and the race
	// detector, may add to anything.
	slack = time.Second
	// patience is how long the suite waits for what has to come, but whose
	// time is not what the case is about.
	patience = 20 * time.Second
	// shortTTL is the lease of cases that wait for its end, on a driver that
	// can give it.
	shortTTL = time.Second
	// caseBound ends a case that hangs.
	caseBound = 4 * time.Minute
	// waiterTTL is the lease that waiters ask for where it is about waiters
	// that die: longer than their silence may be on a store that has
	// heartbeats, and no longer than need be on one where it is the same.
	waiterTTL = 5 * time.Second
	// storeBound is how long a store that cannot be reached may take to be an
	// error.
	storeBound = 10 * time.Second
)

// env is what a case works with. What it opens is closed when the case ends.
type env struct {
	ctx context.Context
	h   Harness

	ctlMu sync.Mutex
	ctl   *locker.Client
	ctlD  driver.Driver

	mu      sync.Mutex
	closers []func()
	healers []func()
	told    map[waiting]int // how often EventWaiting was
	group   sync.WaitGroup
}

// name returns a lock name that nobody else uses.
func (e *env) name(label string) string {
	return fmt.Sprintf("%s-%s", label, e.unique())
}

// unique returns a text that nobody else uses.
func (e *env) unique() string {
	return fmt.Sprintf("%016x", rand.Uint64()) //nolint:gosec // for names, not for secrets
}

// driver opens a driver: one more process.
func (e *env) driver() driver.Driver {
	d, err := e.h.Open(e.ctx)
	e.ok(err, "open")
	e.onClose(func() { _ = d.Close() })
	return d
}

// client opens a driver and makes a Locker of it.
func (e *env) client(opts ...locker.ClientOption) *locker.Client {
	d, err := e.h.Open(e.ctx)
	e.ok(err, "open")
	return e.clientOf(d, opts...)
}

func (e *env) clientOf(d driver.Driver, opts ...locker.ClientOption) *locker.Client {
	var c *locker.Client
	opts = append([]locker.ClientOption{locker.WithObserver(func(_ context.Context, ev locker.Event) {
		if ev.Kind == locker.EventWaiting {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.told[waiting{c, ev.Name}]++
		}
	})}, opts...)
	c = locker.New(d, opts...)
	e.onClose(func() { _ = c.Close() })
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told[waiting{c, ""}] = 1 // its observer counts
	return c
}

// waiting is a client and a name that it waits for.
type waiting struct {
	l    locker.Locker
	name string
}

// waits tells how often a client was told that a ticket of its own is queued. Other
// Lockers do not say.
func (e *env) waits(l locker.Locker, name string) (times int, says bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told[waiting{l, name}], e.told[waiting{l, ""}] > 0
}

// clients opens n of them.
func (e *env) clients(n int, opts ...locker.ClientOption) []*locker.Client {
	cs := make([]*locker.Client, n)
	e.each(n, func(i int) { cs[i] = e.client(opts...) })
	return cs
}

// wired opens a client whose requests pass a wire.
func (e *env) wired(opts ...locker.ClientOption) (*locker.Client, *wire) {
	d, err := e.h.Open(e.ctx)
	e.ok(err, "open")
	w := newWire(d)
	e.onHeal(w.Heal)
	return e.clientOf(w, opts...), w
}

// linked opens a client whose way to the store can be cut: in earnest when the
// harness can, else between core and driver.
func (e *env) linked(opts ...locker.ClientOption) (*locker.Client, Link) {
	if e.h.OpenLink == nil {
		return e.wired(opts...)
	}
	d, link, err := e.h.OpenLink(e.ctx)
	e.ok(err, "open with a link")
	e.onHeal(link.Heal)
	return e.clientOf(d, opts...), link
}

// linkedDriver opens a driver whose way to the store can be cut.
func (e *env) linkedDriver() (driver.Driver, Link) {
	d, link, err := e.h.OpenLink(e.ctx)
	e.ok(err, "open with a link")
	e.onHeal(link.Heal)
	e.onClose(func() { _ = d.Close() })
	return d, link
}

// mortalDriver opens a driver that die ends as a crash does, as far as the
// harness can: without a link nothing happens, and only leases that end by
// themselves do.
func (e *env) mortalDriver() (d driver.Driver, die func()) {
	if e.h.OpenLink == nil {
		return e.driver(), func() {}
	}
	d, link := e.linkedDriver()
	return d, link.Cut
}

// control is a client for looking on.
func (e *env) control() *locker.Client {
	c, _ := e.controlled()
	return c
}

// controlled is the client for looking on, and its driver. The first call opens
// them.
func (e *env) controlled() (*locker.Client, driver.Driver) {
	e.ctlMu.Lock()
	defer e.ctlMu.Unlock()
	if e.ctl == nil {
		d, err := e.h.Open(e.ctx)
		e.ok(err, "open")
		e.ctl, e.ctlD = e.clientOf(d), d
	}
	return e.ctl, e.ctlD
}

// bounds are the times that the driver states for a lease.
func (e *env) bounds(ttl time.Duration) driver.Bounds {
	_, d := e.controlled()
	return driver.BoundsOf(d, ttl)
}

// ttl is a short lease that the store itself can give.
func (e *env) ttl() time.Duration { return max(shortTTL, e.bounds(shortTTL).MinTTL) }

// liveness is how long waiters that ask for waiterTTL may delay the queue.
func (e *env) liveness() time.Duration { return e.bounds(waiterTTL).Liveness }

func (e *env) onClose(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closers = append(e.closers, f)
}

func (e *env) onHeal(f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.healers = append(e.healers, f)
}

// close puts everything right and closes it.
func (e *env) close() {
	e.mu.Lock()
	healers, closers := e.healers, e.closers
	e.mu.Unlock()
	for _, heal := range healers {
		heal()
	}
	for _, c := range closers {
		e.group.Go(c)
	}
	done := make(chan struct{})
	go func() { e.group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(patience): // what still hangs is the case's to find
	}
}

// each runs f(0) … f(n-1) at once, waits for all, and fails with the first
// failure.
func (e *env) each(n int, f func(i int)) {
	failed := make([]any, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			failed[i] = failure{errGoexit} // unless f returns, or panics
			defer func() {
				if p := recover(); p != nil {
					failed[i] = p
				}
			}()
			f(i)
			failed[i] = nil
		})
	}
	group.Wait()
	for _, p := range failed {
		if p != nil {
			panic(p)
		}
	}
}

// within is a context that ends after d.
func (e *env) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(e.ctx, d, fmt.Errorf("not within %v", d))
	e.onHeal(cancel)
	return ctx
}

// sleep waits for d.
func (e *env) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-e.ctx.Done():
		e.failf("%w", context.Cause(e.ctx))
	}
}

// eventually waits until f returns nil, at most as long as the bound; then it fails with f's
// error.
func (e *env) eventually(b bound, doing string, f func() error) {
	deadline := time.Now().Add(b.d)
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			e.failf("%s, for %v: %w", doing, b, err)
		}
		e.sleep(pause)
	}
}

// take acquires what is free, or becomes so soon.
func (e *env) take(l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	k, err := l.Acquire(e.within(patience), name, opts...)
	e.ok(err, "acquire %q", name)
	return k
}

// takeNow acquires what is free: it must not take long.
func (e *env) takeNow(l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	begun := time.Now()
	k := e.take(l, name, opts...)
	if took := time.Since(begun); took > 2*slack {
		e.failf("acquire %q, which is free: took %v", name, took)
	}
	return k
}

// refused tries to acquire what cannot be had now.
func (e *env) refused(l locker.Locker, name string, opts ...locker.Option) {
	k, err := l.TryAcquire(e.within(patience), name, opts...)
	if err == nil {
		_ = k.Release(e.ctx)
	}
	e.is(err, locker.ErrNotAcquired, "try to acquire %q, which is not to be had", name)
}

// release releases a lock that is held.
func (e *env) release(k *locker.Lock) {
	e.ok(k.Release(e.within(patience)), "release %q", k.Name())
}

// holds fails when a lock that should be held is not.
func (e *env) holds(k *locker.Lock, why string, args ...any) {
	e.ok(k.Err(), "the holder of %q, %s", k.Name(), fmt.Sprintf(why, args...))
}

// queueOf returns the queue of name, as the control client sees it.
func (e *env) queueOf(name string) []locker.Ticket {
	queue, err := e.control().Inspect(e.within(patience), name)
	e.ok(err, "inspect %q", name)
	return queue.Tickets
}

// awaitQueue waits until the queue of name has n tickets and returns it.
func (e *env) awaitQueue(name string, n int) (queue []locker.Ticket) {
	e.awaitQueueWithin(patient, name, n)
	return e.queueOf(name)
}

// leaves waits until those whose Acquire has failed have left the queue, and n
// tickets remain.
func (e *env) leaves(name string, n int) (queue []locker.Ticket) {
	e.awaitQueueWithin(slacks(1), name, n)
	return e.queueOf(name)
}

func (e *env) awaitQueueWithin(b bound, name string, n int) {
	e.eventually(b, "inspecting "+name, func() error {
		if queue := e.queueOf(name); len(queue) != n {
			return fmt.Errorf("the queue has %d tickets, want %d: %s", len(queue), n, show(queue))
		}
		return nil
	})
}

// empty fails unless nobody is queued, and the next Acquire is
// granted at once.
func (e *env) empty(name string) {
	e.awaitQueueWithin(slacks(1), name, 0)
	e.release(e.takeNow(e.control(), name))
	if queue := e.queueOf(name); len(queue) != 0 {
		e.failf("the queue of %q is %s after all was released", name, show(queue))
	}
}

// show prints a queue.
func show(queue []locker.Ticket) string {
	s := "["
	for i, t := range queue {
		if i > 0 {
			s += " "
		}
		kind := "exclusive"
		if t.Shared {
			kind = fmt.Sprintf("shared/%d", t.Limit)
		}
		state := "waits"
		if t.Held {
			state = "holds"
		}
		s += fmt.Sprintf("%d:%s:%s:%s", t.Token, t.Owner, kind, state)
	}
	return s + "]"
}

// errGoexit is what remains of a case whose goroutine was ended.
var errGoexit = errors.New("the harness ended the case's goroutine (with t.FailNow or t.Skip?)")

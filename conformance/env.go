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
	"github.com/lockerproject/locker/internal/retry"
)

// Times of the suite. All upper bounds are the driver's own or those of the rules,
// plus slack.
const (
	// slack is what a loaded machine with two processors and the race detector may
	// add to any time.
	slack = time.Second
	// patience is how long the suite waits for what has to happen when the case is
	// not about its time.
	patience = 20 * time.Second
	// shortTTL is the lease in cases that wait for its end, on a driver that can
	// give it.
	shortTTL = time.Second
	// lastingTTL is the lease in cases in which a lease has to last for a while: the
	// machine may be busy for the slack between two renewals.
	lastingTTL = 3 * slack
	// caseBound ends a case that hangs.
	caseBound = 4 * time.Minute
	// waiterTTL is the lease that waiters request in cases about waiters that die.
	// It is longer than the liveness interval of stores that have heartbeats, and
	// short for stores whose liveness interval is the TTL.
	waiterTTL = 5 * time.Second

	// longestLook is for how long a case looks at the most whether a lease ends that must not.
	longestLook = 8 * time.Second
	// storeBound is how long a call may take to fail if the store cannot be
	// reached.
	storeBound = 10 * time.Second
)

// env is what a case works with. What it opens is closed when the case ends.
type env struct {
	ctx    context.Context
	h      Harness
	random *random

	ctlMu sync.Mutex
	ctl   *locker.Client
	ctlD  driver.Driver

	mu      sync.Mutex
	closers []func()
	healers []func()
	names   []string // whose queues have to be empty when the case ends
	group   sync.WaitGroup
}

// name returns a lock name that nobody else uses. Its queue has to be empty when the case ends.
func (e *env) name(label string) string {
	name := e.uncheckedName(label)
	e.endsEmpty(name)
	return name
}

// uncheckedName is name for a lock that the case may leave held or waited for.
func (e *env) uncheckedName(label string) string {
	return fmt.Sprintf("%s-%s", label, e.unique())
}

// endsEmpty adds names whose queues have to be empty when the case ends.
func (e *env) endsEmpty(names ...string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names = append(e.names, names...)
}

// unique returns a text that nobody else uses.
func (e *env) unique() string { return uniqueName(rand.Uint64()) } //nolint:gosec // for names, not for secrets

// uniqueName has a lower-case letter: names that differ only in case have to be two names.
func uniqueName(n uint64) string { return fmt.Sprintf("u%016x", n) }

// open opens a driver, which the case closes.
func (e *env) open() driver.Driver {
	d, err := e.h.Open(e.ctx)
	e.ok(err, "open")
	return d
}

// driver opens a driver, which stands for another process.
func (e *env) driver() driver.Driver {
	d := e.open()
	e.onClose(func() { _ = d.Close() })
	return d
}

// client opens a driver and returns a Client of it.
func (e *env) client(opts ...locker.ClientOption) *locker.Client {
	return e.clientOf(e.open(), opts...)
}

func (e *env) clientOf(d driver.Driver, opts ...locker.ClientOption) *locker.Client {
	c := locker.New(d, append([]locker.ClientOption{locker.WithObserver(observeWaiting)}, opts...)...)
	e.onClose(func() { _ = c.Close() })
	return c
}

// clients opens n of them.
func (e *env) clients(n int) []*locker.Client {
	cs := make([]*locker.Client, n)
	e.each(n, func(i int) { cs[i] = e.client() })
	return cs
}

// wired opens a client whose requests pass through a wire.
func (e *env) wired(opts ...locker.ClientOption) (*locker.Client, *wire) {
	w := newWire(e.open())
	e.onHeal(w.Heal)
	return e.clientOf(w, opts...), w
}

// linked opens a client whose connection to the store can be cut. Without
// Harness.OpenLink it is cut between core and driver.
func (e *env) linked(opts ...locker.ClientOption) (*locker.Client, Link) {
	if e.h.OpenLink == nil {
		return e.wired(opts...)
	}
	d, link := e.openLink()
	return e.clientOf(d, opts...), link
}

func (e *env) openLink() (driver.Driver, Link) {
	d, link, err := e.h.OpenLink(e.ctx)
	e.ok(err, "open with a link")
	e.onHeal(link.Heal)
	return d, link
}

// linkedDriver opens a driver whose connection to the store can be cut.
func (e *env) linkedDriver() (driver.Driver, Link) {
	d, link := e.openLink()
	e.onClose(func() { _ = d.Close() })
	return d, link
}

// killableDriver opens a driver, and returns a function that cuts it off for good, as
// a crash would. Without Harness.OpenLink that does nothing, and only leases that
// end by themselves end.
func (e *env) killableDriver() (d driver.Driver, die func()) {
	if e.h.OpenLink == nil {
		return e.driver(), func() {}
	}
	d, link := e.linkedDriver()
	return d, link.Cut
}

// control returns the client that observes the queues.
func (e *env) control() *locker.Client {
	c, _ := e.controlled()
	return c
}

// controlled returns the client that observes the queues, and its driver. The
// first call opens them.
func (e *env) controlled() (*locker.Client, driver.Driver) {
	e.ctlMu.Lock()
	defer e.ctlMu.Unlock()
	if e.ctl == nil {
		e.ctlD = e.open()
		e.ctl = e.clientOf(e.ctlD)
	}
	return e.ctl, e.ctlD
}

// closeControl closes the client that observes the queues. The next call that needs one opens another.
func (e *env) closeControl() {
	e.ctlMu.Lock()
	defer e.ctlMu.Unlock()
	if e.ctl != nil {
		e.ok(e.ctl.Close(), "close of the client that observes the queues")
		e.ctl, e.ctlD = nil, nil
	}
}

// bounds returns the bounds that the driver states for a lease.
func (e *env) bounds(ttl time.Duration) driver.Bounds {
	_, d := e.controlled()
	return driver.BoundsOf(d, ttl)
}

// leaseOf returns a TTL that the store itself can give, of d or longer.
func (e *env) leaseOf(d time.Duration) time.Duration { return max(d, e.bounds(d).MinTTL) }

// ttl returns a short TTL that the store itself can give.
func (e *env) ttl() time.Duration { return e.leaseOf(shortTTL) }

// lasting returns a TTL for a lease that must not be lost on a loaded machine.
func (e *env) lasting() time.Duration { return e.leaseOf(lastingTTL) }

// liveness is how long waiters that requested waiterTTL may delay the queue.
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

// close ends all faults and closes what was opened.
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
	case <-time.After(patience): // a case has to find a Close that hangs
	}
}

// each runs f(0) … f(n-1) concurrently, waits for all, and fails with the first
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

// together runs functions concurrently, as each does.
func (e *env) together(fs ...func()) { e.each(len(fs), func(i int) { fs[i]() }) }

// within returns a context that ends after d.
func (e *env) within(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(e.ctx, d, fmt.Errorf("not within %v", d))
	e.onHeal(cancel)
	return ctx
}

// sleep waits for d.
func (e *env) sleep(d time.Duration) {
	if !retry.Sleep(e.ctx, d, nil) {
		e.failf("%w", context.Cause(e.ctx))
	}
}

// moment is how much longer than a bound the suite waits if this process stood still when
// the bound was over: what has to happen goes on only then.
const moment = 100 * time.Millisecond

// eventually waits until f returns nil. It fails with f's error if f returns one when it
// is called after the bound. If that call is late, because this process stood still or the
// answer to the one before was late, f is called once more.
func (e *env) eventually(b bound, doing string, f func() error) {
	deadline := time.Now().Add(b.d)
	for pause, again := 2*time.Millisecond, false; ; pause = min(2*pause, moment/2) {
		late := time.Since(deadline)
		err := f()
		if err == nil {
			return
		}
		if late > 0 && (late < moment || again) {
			e.failf("%s, for %v: %w", doing, b, err)
		}
		if again = late > 0; again {
			pause = moment
		}
		e.sleep(pause)
	}
}

// errGoexit is the error of a case whose goroutine was ended.
var errGoexit = errors.New("the harness ended the case's goroutine (with t.FailNow or t.Skip?)")

package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// DefaultPatience is how long Fallback waits for the primary's answer.
const DefaultPatience = 2 * time.Second

// Fallback returns a driver that acquires on the primary, and on the secondary while the
// primary is unavailable. That is so if its error means that the store did not answer or
// refuses everybody (driver.ErrUnavailable, errors of the network), or if it does not
// answer within the patience. Fallback never degrades because somebody else holds the
// lock, because a right is missing, or because the caller's context has ended.
//
// Observers see each grant of the secondary, with the reason: Degraded of locker.Event.
//
// A request that the primary has not answered also starts a probe in the background: a
// Ping, with half of the patience. If that has no answer either, the primary is away.
// Then requests go to the secondary at once, until the primary answers one of the Pings
// that follow, at most a second apart, or says that a ticket that waited there is lost.
// While the primary answers soon, no Ping is sent. A primary that answers Pings is asked,
// even if it leaves the requests for some names without an answer.
//
// # When it grants twice
//
// The two stores are independent of each other, so a name can have two holders at the
// same time, one on each store. That happens
//
//   - while one program reaches the primary and another does not;
//   - after the primary has gone down, until the leases that it had granted end: their
//     holders go on until then, while the secondary grants to others;
//   - after the primary is back, until all programs have noticed (a second and half of
//     the patience), and the locks that the secondary has granted are released;
//   - while the primary is slower than the patience, or than half of it for a Ping;
//   - when the primary is slower than half of the time that the caller has: give a wait
//     limit or a deadline of more than twice what the primary takes at its worst.
//
// Use it for work that is better done twice than not at all, or whose resource checks
// tokens. Otherwise use one store that survives the loss of a server, or [All], which
// never grants twice.
//
// # Tokens
//
// Tokens of a name grow over all grants of the primary, and over all grants of the
// secondary. Between the two there is no order, since either may be unavailable. What a
// resource that checks tokens sees after a change of store depends on the two stores:
//
//   - Two that number by their server's clock (Redis, PostgreSQL): tokens grow over
//     both changes, as long as the servers' clocks differ by less than
//     the time between the last grant of one and the first of the other.
//   - A secondary whose tokens are always greater (TokenBase): tokens grow when
//     Fallback degrades, and fall when the primary is back. If a degraded holder has
//     written, the resource then refuses the primary's holders, until TokenBase is
//     added to the primary, above the secondary's tokens.
//   - A secondary whose tokens are always smaller: if a holder of the primary has
//     written, the resource refuses degraded holders.
//
// In each case the resource accepts no stale write. The cases differ in which holders
// it refuses.
//
// # What is not moved
//
// A lock stays on the store that granted it, and is lost with that store. A request that
// the primary has queued waits there until its context ends, also during an outage.
// Inspect and List show both stores, or the one that answers; Ping needs one of them.
//
// Fallback closes both drivers. It panics when one is nil.
func Fallback(primary, secondary driver.Driver) *FallbackDriver {
	if primary == nil || secondary == nil {
		panic("compose: Fallback: a driver is nil")
	}
	f := &FallbackDriver{
		stores: [2]driver.Driver{primary, secondary}, patience: DefaultPatience,
		on: make(map[key]int), tasks: newBackground(),
	}
	f.orphans = newOrphans(primary, f.tasks)
	for i, d := range f.stores {
		f.outages[i] = &outage{store: d, bound: DefaultPatience / 2, tasks: f.tasks}
		if n, ok := d.(driver.LossNotifier); ok {
			n.NotifyLoss(func(h driver.Hold, cause error) { f.lost(i, h, cause) })
		}
	}
	return f
}

// FallbackDriver is the driver that Fallback makes.
type FallbackDriver struct {
	stores     [2]driver.Driver // primary, secondary
	patience   time.Duration
	notifyLoss func(driver.Hold, error)
	tasks      *background
	orphans    *orphans // on the primary
	outages    [2]*outage

	mu sync.Mutex
	on map[key]int // which store a ticket is on
}

const primary, secondary = 0, 1

// errOnSecondary is why the secondary grants a ticket that it has already, when the primary is back.
var errOnSecondary = driver.Unavailable(errors.New("an earlier request for this ticket was not answered"))

var (
	_ driver.Driver       = (*FallbackDriver)(nil)
	_ driver.BatchRenewer = (*FallbackDriver)(nil)
	_ driver.Lister       = (*FallbackDriver)(nil)
	_ driver.Breaker      = (*FallbackDriver)(nil)
	_ driver.LossNotifier = (*FallbackDriver)(nil)
	_ driver.Shortener    = (*FallbackDriver)(nil)
	_ driver.Bounder      = (*FallbackDriver)(nil)
	_ driver.Pinger       = (*FallbackDriver)(nil)
)

// Patience sets how long the primary may take to answer an acquisition (to grant, to
// refuse, or to report that the ticket is queued) and returns f. d has to be shorter than
// the core's own bound, 10 s unless it was changed: the request that meets the beginning of
// an outage fails at that bound otherwise. If the caller has a deadline or a wait limit, the
// primary gets at most half of the time that is left. A Fallback that is a part of another
// one needs less patience than that one has. Call Patience before f is used. It panics
// when d is not greater than zero.
func (f *FallbackDriver) Patience(d time.Duration) *FallbackDriver {
	if d <= 0 {
		panic(fmt.Sprintf("compose: Patience(%v): want a duration greater than zero", d))
	}
	f.patience, f.outages[primary].bound, f.outages[secondary].bound = d, d/2, d/2
	return f
}

// String names the stores.
func (f *FallbackDriver) String() string {
	return nameOf(f.stores[primary]) + " or " + nameOf(f.stores[secondary])
}

// Acquire implements driver.Driver.
func (f *FallbackDriver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	store, away := f.storeOf(r.Hold(0)), f.outages[primary].cause()
	switch {
	case store == secondary: // asked again
		g, err := f.stores[secondary].Acquire(ctx, r)
		if err == nil {
			g.Degraded = cmp.Or(away, errOnSecondary)
		}
		f.settle(r.Hold(0), err, false)
		return g, err
	case away != nil && store == nowhere:
		return f.degrade(ctx, r, driver.NoTicket(away))
	case away != nil: // an earlier request may have left a ticket
		return f.degrade(ctx, r, away)
	}
	f.set(r.Hold(0), primary)
	g, queued, err := f.acquirePrimary(ctx, r)
	switch {
	case err == nil:
		return g, nil
	case queued || ctx.Err() != nil || !driver.IsUnavailable(err): // the core queues again what was queued (D8)
		f.settle(r.Hold(0), err, store == nowhere)
		return driver.Grant{}, err
	}
	return f.degrade(ctx, r, err)
}

// acquirePrimary asks the primary, which must answer within the patience, and may then
// take any time to grant. If it does not answer soon, a probe begins, so that the requests
// after this one need not wait as long. It reports whether the ticket was queued there in time.
func (f *FallbackDriver) acquirePrimary(ctx context.Context, r driver.Request) (g driver.Grant, queued bool, err error) {
	bound := f.bound(ctx)
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(bound, func() {
		cancel(driver.Unavailable(fmt.Errorf("no answer within %v", bound)))
	})
	defer timer.Stop()
	late := time.AfterFunc(bound/4, f.outages[primary].startProbe)
	defer late.Stop()
	var joins atomic.Bool
	if joined := r.Joined; r.Wait {
		r.Joined = func() {
			// After the patience the secondary is asked, and its answer is still due.
			if !timer.Stop() {
				return
			}
			late.Stop()
			joins.Store(true)
			if joined != nil {
				joined()
			}
		}
	}
	g, err = f.stores[primary].Acquire(asking, r)
	queued = joins.Load()
	if errors.Is(err, driver.ErrLost) {
		f.outages[primary].lost()
	}
	if err == nil || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost) {
		return g, queued, err
	}
	if ctx.Err() == nil && asking.Err() != nil && !driver.IsUnavailable(err) {
		err = fmt.Errorf("%w: %w", context.Cause(asking), err)
	}
	switch away := f.outages[primary].cause(); {
	case !queued && (ctx.Err() != nil || driver.IsUnavailable(err)):
		f.outages[primary].startProbe()
	case queued && away != nil:
		err = errors.Join(err, away) // the secondary answers Inspect meanwhile: nobody else says so
	}
	return g, queued, err
}

// bound is how long a store may take to answer a call under ctx: half of the time that is
// left belongs to the other store.
func (f *FallbackDriver) bound(ctx context.Context) time.Duration {
	if until, ok := ctx.Deadline(); ok {
		return min(f.patience, time.Until(until)/2)
	}
	return f.patience
}

// degrade acquires on the secondary. The primary may have the ticket too, so it is
// removed there in the background.
func (f *FallbackDriver) degrade(ctx context.Context, r driver.Request, cause error) (driver.Grant, error) {
	cause = fmt.Errorf("%s: %w", nameOf(f.stores[primary]), cause)
	f.set(r.Hold(0), secondary)
	if !errors.Is(cause, driver.ErrNoTicket) {
		f.orphans.add(r.Hold(0))
	}
	var queued atomic.Bool
	if joined := r.Joined; r.Wait {
		r.Joined = func() {
			queued.Store(true)
			if joined != nil {
				joined()
			}
		}
	}
	g, err := f.stores[secondary].Acquire(ctx, r)
	if err == nil {
		g.Degraded = cause
		return g, nil
	}
	f.settle(r.Hold(0), err, errors.Is(cause, driver.ErrNoTicket))
	if away := f.outages[secondary].cause(); queued.Load() && away != nil {
		err = errors.Join(err, away) // the primary answers Inspect meanwhile: nobody else says so
	}
	answered := queued.Load() || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost)
	if answered || errors.Is(err, driver.ErrClosed) {
		return driver.Grant{}, err // the secondary's answer counts: the outage of the primary is no reason
	}
	both := fmt.Errorf("%w; %s: %w", cause, nameOf(f.stores[secondary]), err)
	if errors.Is(cause, driver.ErrNoTicket) && errors.Is(err, driver.ErrNoTicket) {
		return driver.Grant{}, both
	}
	return driver.Grant{}, partially(both)
}

// settle forgets a ticket if err means that the store certainly does not have it. If another
// request may have left it somewhere (not alone), it is forgotten when it is released: what is
// removed from the primary in the background is not asked for there again.
func (f *FallbackDriver) settle(h driver.Hold, err error, alone bool) {
	if errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost) || alone && errors.Is(err, driver.ErrNoTicket) {
		f.forget(h)
	}
}

const nowhere = -1

// storeOf returns the store that has a ticket, or nowhere.
func (f *FallbackDriver) storeOf(h driver.Hold) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.on[keyOf(h)]; ok {
		return i
	}
	return nowhere
}

func (f *FallbackDriver) set(h driver.Hold, store int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.on[keyOf(h)] = store
}

func (f *FallbackDriver) forget(h driver.Hold) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.on, keyOf(h))
}

// NotifyLoss implements driver.LossNotifier.
func (f *FallbackDriver) NotifyLoss(notify func(driver.Hold, error)) { f.notifyLoss = notify }

// lost is called when the i-th store has pushed a loss. If the other store has the
// ticket, it is the loss of an orphan, and ignored.
func (f *FallbackDriver) lost(i int, h driver.Hold, cause error) {
	if f.storeOf(h) == i && f.notifyLoss != nil {
		f.notifyLoss(h, cause)
	}
}

// Close implements driver.Driver.
func (f *FallbackDriver) Close() error {
	f.tasks.stop()
	defer f.tasks.wait()
	errs := f.both(func(_ int, d driver.Driver) error { return d.Close() })
	return errors.Join(errs[:]...)
}

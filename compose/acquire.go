package compose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// Acquire implements driver.Driver.
func (m *AllDriver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if !r.Wait && !m.knows(keyOf(r.Hold(0))) {
		if err := m.tryOthers(ctx, r); err != nil {
			return driver.Grant{}, err
		}
	}
	a := &acquisition{m: m, r: r, caller: ctx, grants: make([]driver.Grant, 0, len(m.parts))}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	defer a.cancel(nil)
	m.enter(keyOf(r.Hold(0)), a.cancel)
	if err := a.run(); err != nil {
		return driver.Grant{}, a.fail(err)
	}
	if err := m.granted(keyOf(r.Hold(0))); err != nil {
		return driver.Grant{}, a.fail(err)
	}
	return a.grant(), nil
}

// tryOthers refuses a request that does not wait if a store after the first would refuse it,
// before it is queued anywhere.
func (m *AllDriver) tryOthers(ctx context.Context, r driver.Request) error {
	refused := make([]bool, len(m.parts))
	err := m.each(func(i int, d driver.Driver) error {
		if i == 0 {
			return nil // if it refuses, the ticket is queued nowhere
		}
		q, err := d.Inspect(ctx, r.Name)
		if err != nil {
			return err
		}
		queued := slices.ContainsFunc(q, func(t driver.Ticket) bool { return t.ID == r.ID })
		refused[i] = !queued && !driver.Grantable(append(q, r.Ticket(0)), len(q))
		return nil
	})
	switch {
	case err != nil:
		return driver.NoTicket(err)
	case slices.Contains(refused, true):
		return driver.ErrNotAcquired
	}
	return nil
}

func (m *AllDriver) knows(k key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.books[k] != nil
}

// enter opens the book of a ticket. An earlier request for it may still be on its way.
func (m *AllDriver) enter(k key, end func(error)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := &book{parts: make([]part, len(m.parts)), end: end}
	if earlier := m.books[k]; earlier != nil {
		for i, p := range earlier.parts {
			b.parts[i] = part{asked: p.asked, unknown: p.unknown}
		}
	}
	m.books[k] = b
}

// isUnknown reports whether a request for a ticket may still be on its way to a store.
func (m *AllDriver) isUnknown(k key) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[k]
	return b != nil && slices.ContainsFunc(b.parts, func(p part) bool { return p.unknown })
}

// forget closes the book of a ticket that is on no store.
func (m *AllDriver) forget(k key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.books, k)
}

// granted ends the acquisition: from now on the core is notified of a loss. An error
// means that a part was lost, or the ticket removed, before.
func (m *AllDriver) granted(k key) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.books[k]
	switch {
	case b == nil:
		return errRemoved
	case b.lost != nil:
		return b.lost
	}
	b.granted = true
	return nil
}

// errRemoved: Release was called while Acquire was under way.
var errRemoved = errors.New("the ticket was removed meanwhile")

// acquisition is one Acquire: it queues on one part after the other, and meanwhile
// renews the parts that were granted.
type acquisition struct {
	m      *AllDriver
	r      driver.Request
	caller context.Context // of the call
	ctx    context.Context // ends with caller, or when a part is lost
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	queued bool           // Joined was called
	grants []driver.Grant // of the first parts, as renewed last
}

// run acquires all parts.
func (a *acquisition) run() error {
	ctx, stop := context.WithCancel(a.ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	last := len(a.m.parts) - 1
	for i := range a.m.parts {
		g, err := a.acquire(i)
		if err != nil {
			return err
		}
		a.add(g)
		if a.ctx.Err() != nil { // each store may take 50 ms to end its call
			return context.Cause(a.ctx)
		}
		if i < last {
			group.Go(func() { a.keep(ctx, i) })
		}
	}
	stop()
	group.Wait()
	if err := a.refresh(); err != nil {
		return err
	}
	return context.Cause(a.ctx)
}

// acquire acquires one part. Once the ticket is queued it waits for a store that is
// down, as the driver of one store does (D7).
func (a *acquisition) acquire(i int) (driver.Grant, error) {
	r, d := a.r, a.m.parts[i]
	var queued atomic.Bool // on this store
	r.Joined = func() {
		queued.Store(true)
		a.joined()
	}
	if !a.m.change(i, a.r.Hold(0), func(p *part) { p.asked = true }) {
		return driver.Grant{}, errRemoved
	}
	for pause := retry.Usual(); ; {
		asked := time.Now()
		g, err := d.Acquire(a.ctx, r)
		if err == nil {
			return g, nil
		}
		a.note(i, err)
		if a.caller.Err() != nil {
			return g, a.ended(d, err, !queued.Load() && time.Since(asked) >= silence)
		}
		err = fmt.Errorf("%s: %w", nameOf(d), err)
		if !a.isQueued() || !driver.IsUnavailable(err) || a.ctx.Err() != nil {
			return g, err
		}
		if !retry.Sleep(a.ctx, pause.Next(), nil) {
			return g, errors.Join(context.Cause(a.ctx), err)
		}
	}
}

// silence is how long a store must leave a request without an answer before it counts as
// unavailable when the call ends.
const silence = time.Second

// ended is the error of a part at the end of the call. It has no name of the store: the end
// of the call must not look like an error of the store. If the store was silent, ended adds
// that: the core expects no answer any more since another store has queued the ticket (D7).
func (a *acquisition) ended(d driver.Driver, err error, silent bool) error {
	if !silent || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost) {
		return err
	}
	return errors.Join(err, driver.Unavailable(fmt.Errorf("%s did not answer", nameOf(d))))
}

// note notes in the book whether a request that failed may still be on its way to its
// store: see Release.
func (a *acquisition) note(i int, err error) {
	lost := errors.Is(err, driver.ErrLost) && a.ctx.Err() == nil
	if lost || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrNoTicket) {
		return
	}
	a.m.change(i, a.r.Hold(0), func(p *part) { p.unknown = true })
}

// joined is called by the parts on which the ticket has to wait.
func (a *acquisition) joined() {
	a.mu.Lock()
	first := !a.queued
	a.queued = true
	a.mu.Unlock()
	if first && a.r.Joined != nil {
		a.r.Joined()
	}
}

func (a *acquisition) isQueued() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queued
}

func (a *acquisition) add(g driver.Grant) {
	a.mu.Lock()
	i := len(a.grants)
	a.grants = append(a.grants, g)
	a.mu.Unlock()
	a.m.change(i, a.r.Hold(0), func(p *part) { p.token = g.Token })
}

// fail turns the error of one part into the error of all. It returns ErrNotAcquired or
// ErrLost only when no store has the ticket any more; after any other error the core
// removes the ticket (D9).
func (a *acquisition) fail(err error) error {
	refused := errors.Is(err, driver.ErrNotAcquired)
	lost := a.caller.Err() == nil && (errors.Is(err, driver.ErrLost) || a.ctx.Err() != nil || errors.Is(err, errRemoved))
	clean := refused || lost || errors.Is(err, driver.ErrNoTicket)
	switch {
	case len(a.grants) == 0 && a.ctx.Err() == nil && clean && !a.m.isUnknown(keyOf(a.r.Hold(0))):
		a.m.forget(keyOf(a.r.Hold(0))) // only the first store was asked for it
		return err
	case refused:
		if left := a.release(); left != nil {
			return partially(fmt.Errorf("refused by one store, and not yet removed from the others: %w", left))
		}
		return driver.ErrNotAcquired
	case lost && a.undo():
		return fmt.Errorf("%w while the other stores were waited for: %w", driver.ErrLost, errors.Join(context.Cause(a.ctx), err))
	}
	if cause := context.Cause(a.caller); cause != nil && !errors.Is(err, cause) { // the ticket was lost before
		err = errors.Join(cause, err)
	}
	return partially(err)
}

// undo removes the ticket from all stores, and tries until they have confirmed it or the
// call ends. The core can then queue again.
func (a *acquisition) undo() bool {
	for pause := retry.Usual(); a.release() != nil; {
		if !retry.Sleep(a.caller, pause.Next(), nil) {
			return false
		}
	}
	return true
}

// release asks all stores once to remove the ticket.
func (a *acquisition) release() error {
	if err := a.m.Release(a.caller, a.r.Hold(0)); !errors.Is(err, driver.ErrLost) {
		return err
	}
	return nil
}

// grant is the grant of all: the token of the authority, and the lease that ends
// first.
func (a *acquisition) grant() driver.Grant {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.grants[0]
	all.Token = a.grants[a.m.authority].Token
	for _, g := range a.grants[1:] {
		if g.Asked.Before(all.Asked) {
			all.Asked = g.Asked
		}
		all.TTL = shorter(all.TTL, g.TTL)
		all.Claim = shorter(all.Claim, g.Claim)
		all.Degraded = cmp.Or(all.Degraded, g.Degraded)
	}
	return all
}

// shorter is the lesser of two lengths; 0 means no length.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

package kvqueue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// Acquire implements driver.Driver. A request that waits puts its ticket, and reads the
// queue together with that. A request that does not wait reads the queue first. It puts
// its ticket only if that would be granted, and on condition that it still is.
func (e *Engine) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	ctx, done := e.bind(ctx)
	defer done()
	t, err := e.enter(ctx, &r)
	if err != nil {
		return driver.Grant{}, err
	}
	defer e.leave(t)
	return e.outcome(ctx, t, &r)
}

// enter queues a ticket, or returns the ticket of an earlier call for the same request, for which
// the call is counted (join). It tries again if the store says that it cannot serve at the moment,
// if the queue has changed since a request that does not wait has read it, if the store's client has
// sent the ticket twice, and if the session turns out to have ended.
func (e *Engine) enter(ctx context.Context, r *driver.Request) (*ticket, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	call, err := e.begin(ctx, r, stop)
	if err != nil {
		return nil, err
	}
	defer e.entered(call, r.ID)
	var last error // of a store that has answered
	pause, changing := newBackoff(), retry.Backoff{First: time.Millisecond, Most: 100 * time.Millisecond}
	for {
		var delay time.Duration
		t, err := e.enterOnce(ctx, r)
		switch {
		case e.wasReleased(call):
			if err == nil {
				e.leave(t)
			}
			return nil, ErrReleased
		case err == nil:
			return t, nil
		case ctx.Err() != nil:
			return nil, e.notQueued(ctx, r, cmp.Or(last, err))
		case errors.Is(err, ErrChanged), errors.Is(err, ErrSessionOver), errors.Is(err, ErrOccupied):
			delay = changing.Next()
		case e.store.Temporary(err):
			last, delay = err, pause.Next()
		default:
			return nil, e.notQueued(ctx, r, err)
		}
		if !e.pause(ctx, delay) {
			return nil, e.notQueued(ctx, r, cmp.Or(last, err))
		}
	}
}

// entering is a call of Acquire that is in enter.
type entering struct {
	name     string
	stop     context.CancelFunc
	released bool          // the ticket was released meanwhile
	over     chan struct{} // closed at its end
}

// begin waits until no other call is in enter for the same ticket. If that other one is ended by a
// release, the new one is too.
func (e *Engine) begin(ctx context.Context, r *driver.Request, stop context.CancelFunc) (*entering, error) {
	own := &entering{name: r.Name, stop: stop, over: make(chan struct{})}
	for {
		e.mu.Lock()
		other := e.entering[r.ID]
		if other == nil {
			e.entering[r.ID] = own
		}
		e.mu.Unlock()
		if other == nil {
			return own, nil
		}
		select {
		case <-other.over:
			if e.wasReleased(other) {
				return nil, ErrReleased
			}
		case <-ctx.Done():
			return nil, e.failed(ctx, ctx.Err())
		}
	}
}

func (e *Engine) entered(call *entering, id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.entering, id)
	close(call.over)
}

func (e *Engine) wasReleased(call *entering) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return call.released
}

// enterOnce tries once.
func (e *Engine) enterOnce(ctx context.Context, r *driver.Request) (*ticket, error) {
	if e.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	length, err := e.store.Class(r)
	if err != nil {
		return nil, err
	}
	if err := e.store.Agree(ctx, true); err != nil {
		return nil, err
	}
	if t, err := e.known(ctx, r); t != nil || err != nil {
		return t, err
	}
	return e.put(ctx, r, kind{length, r.MinHold > 0})
}

// notQueued returns the error of an Acquire whose ticket is not known to be queued.
func (e *Engine) notQueued(ctx context.Context, r *driver.Request, err error) error {
	e.mu.Lock()
	t := e.tickets[r.ID]
	e.mu.Unlock()
	if t == nil && errors.Is(err, driver.ErrNotAcquired) {
		return err
	}
	err = e.failed(ctx, err)
	if t == nil {
		err = driver.NoTicket(err)
	}
	return err
}

// known returns the ticket of a request that is repeated, if it is held, or waits and may
// wait. Otherwise the ticket is removed first.
func (e *Engine) known(ctx context.Context, r *driver.Request) (*ticket, error) {
	e.mu.Lock()
	t := e.find(driver.Hold{Name: r.Name, ID: r.ID})
	if t == nil {
		e.mu.Unlock()
		return nil, nil
	}
	if t.state == leaving && !t.deleting && r.Wait {
		e.wait(t) // its caller had given up, and the queue may not have been watched since
		t.queue.reread()
	}
	wanted := t.state == held || t.state == waiting && r.Wait
	if wanted {
		e.join(t)
	}
	e.mu.Unlock()
	if wanted {
		return t, nil
	}
	if err := e.remove(ctx, t); err != nil && !errors.Is(err, driver.ErrLost) {
		return nil, err
	}
	return nil, nil
}

// put puts a ticket.
func (e *Engine) put(ctx context.Context, r *driver.Request, k kind) (*ticket, error) {
	since := time.Now()
	p := &Put{Request: r, Class: k.length}
	if !r.Wait {
		var err error
		if p.If, err = e.store.Look(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.Renewed && r.MinHold == 0 {
		since = since.Add(-k.length / freshPart)
	}
	s, err := e.attach(ctx, k, since)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	t := e.enroll(r, s)
	e.join(t)
	p.Ticket, p.Brief = t.Ticket, t.willWait(r)
	e.mu.Unlock()
	placed, err := e.store.Put(ctx, p)
	if err = e.placed(t, p, &placed, err); err != nil {
		e.leave(t)
		return nil, err
	}
	return t, nil
}

// willWait reports whether a ticket will certainly wait after its put, in a queue that is
// known to be long. With mu held.
func (t *ticket) willWait(r *driver.Request) bool {
	w := t.queue.watcher
	if !r.Wait || w == nil || len(w.view.entries) <= w.q.e.opts.LongQueue {
		return false
	}
	for _, other := range t.queue.waiters {
		if !other.Shared || !t.Shared {
			return true
		}
	}
	return false
}

// placed handles the answer to a put.
func (e *Engine) placed(t *ticket, asked *Put, p *Placed, err error) error {
	e.mu.Lock()
	defer e.unlock()
	if err == nil && t.session.over { // the entry was there, and has gone with the session
		err = ErrSessionOver
	}
	switch {
	case err == nil:
	case isRefused(err):
		if errors.Is(err, ErrSessionOver) && !t.session.over {
			e.sessionOver(t.session)
		}
		e.forget(t)
		return err
	default: // the entry may be there, or may still be created
		t.state = orphan
		e.retire(t.session)
		return err
	}
	t.Number, t.Version = p.Number, p.Version
	t.state = leaving // nobody waits for it yet
	switch {
	case p.Granted:
		e.granted(t)
	case asked.If != nil: // another ticket is ahead that the condition did not cover
		return ErrChanged
	default:
		e.wait(t)
	}
	if w := t.queue.watcher; w != nil {
		w.place(t.Entry, p)
	}
	return nil
}

// outcome waits for the grant of a ticket, unless the put has granted it.
func (e *Engine) outcome(ctx context.Context, t *ticket, r *driver.Request) (driver.Grant, error) {
	e.mu.Lock()
	ended, queued := t.ended, t.state == waiting || t.waited || t.state == leaving && t.ended != nil && !t.woken
	e.mu.Unlock()
	if queued {
		if r.Joined != nil { // also if it has been granted since
			r.Joined()
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return driver.Grant{}, e.stopped(ctx)
		}
	}
	return e.grant(ctx, t, r)
}

// grant returns the grant of a ticket that is held, or ErrLost. The lease counts from the
// last keep-alive of its session or, if the session lasts longer than the TTL, from later.
// If nobody renews the lease and the ticket has waited, or if it has a minimum hold, a
// keep-alive is sent after the grant.
func (e *Engine) grant(ctx context.Context, t *ticket, r *driver.Request) (driver.Grant, error) {
	for e.mayBeBroken(t) {
		if ctx.Err() != nil {
			return driver.Grant{}, context.Cause(ctx)
		}
		e.checkUnsure(ctx, t.session)
	}
	e.mu.Lock()
	now := time.Now()
	since := now.Add(-t.session.ttl / keepPart)
	if !r.Renewed && t.waited || t.stays > 0 {
		since = t.since
	}
	e.mu.Unlock()
	if err := e.ensure(ctx, t, since); err != nil {
		return driver.Grant{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if t.state != held {
		return driver.Grant{}, e.notHeld(ctx, t)
	}

	g := driver.Grant{Token: t.Number, Asked: t.session.sent, TTL: t.session.ttl}
	if spare := t.session.ttl - r.TTL; spare > 0 { // the other half is for a late release
		if g.Asked = g.Asked.Add(spare / 2); g.Asked.After(now) {
			g.Asked = now
		}
	}
	if !r.Renewed {
		t.until = g.Asked.Add(r.TTL)
	}
	return g, nil
}

// mayBeBroken reports whether a ticket was granted, and a loss was reported before its put was
// answered.
func (e *Engine) mayBeBroken(t *ticket) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return t.state == held && t.unsure()
}

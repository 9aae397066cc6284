package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/whole"
)

// acquisition is one call of Acquire or TryAcquire, from its options to a lease.
type acquisition struct {
	call    // and the context that the driver gets
	c       *Client
	name    string
	r       request
	req     driver.Request // for the present ticket; without ID: there was none yet
	try     bool           // do not wait
	id      uint64         // for observers
	most    time.Duration  // the longest lease that the store gives; 0: any
	owned   *owned         // of an explicit owner, or nil
	sure    bool           // the store has confirmed that the present ticket is queued, and not granted it
	removed bool           // the ticket is removed already, since the call has ended while observers ran
	waited  bool           // the observers were notified of EventWaiting
	granted bool           // and of EventAcquired or EventReentered: no EventFailed follows
}

// undoWait is how long a call that has failed waits for its ticket to be removed. A
// driver returns within 50 ms of the end of its context: with these 30 ms the call
// returns within 100 ms of it.
const undoWait = 30 * time.Millisecond

// suspendCheckAfter is how long a request takes before the clock is asked whether the
// machine was suspended meanwhile. Faster requests skip that system call.
const suspendCheckAfter = 20 * time.Microsecond

// errPanicked is reported by EventFailed when an observer panicked.
var errPanicked = errors.New("the acquisition has panicked")

// acquire checks the arguments, and re-enters or queues.
func (c *Client) acquire(ctx context.Context, name string, try bool, opts []Option) (*Lock, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	a := &acquisition{c: c, name: name}
	if err := a.r.read(c, opts); err != nil {
		return nil, err
	}
	if !a.r.explicit {
		a.r.owner = c.process
	}
	began := whole.Begun(ctx)
	if !began.IsZero() {
		ctx = whole.Outside(ctx)
	}
	if err := a.begin(ctx, c.core); err != nil {
		return nil, err
	}
	defer a.end()
	a.queues = true
	a.try = try || a.r.limited && a.r.wait == 0
	switch {
	case !began.IsZero() && a.r.wait > 0: // a try may take no longer either
		if a.wait = a.r.wait - a.begun.Sub(began); a.wait <= 0 {
			return nil, because(nil, ErrNotAcquired, errWaitOver)
		}
	case !a.try:
		a.wait = a.r.wait
	}
	if len(c.observers) > 0 {
		a.id = acquisitions.Add(1)
	}
	returned := false
	defer func() {
		if !returned { // an observer panicked
			if a.req.ID != "" {
				a.c.leases.undoPanicked(a.req.Hold(0))
			}
			a.failed(errPanicked)
		}
	}()
	k, err := a.run()
	returned = true
	if err != nil {
		a.failed(err)
	}
	return k, err
}

// run re-enters what the context or the owner holds already, or queues.
func (a *acquisition) run() (*Lock, error) {
	if a.r.noReentry {
		return a.queue()
	}
	if k := a.outer(); k != nil {
		inner, err := a.reenter(k.lease)
		if !errors.Is(err, errEnded) {
			return inner, err
		}
	}
	if a.r.explicit {
		return a.runOwned()
	}
	return a.queue()
}

// queue takes a ticket and waits for its grant. If a ticket that was queued was lost in an
// outage, or the driver gave it up since the store does not say what became of it, queue takes
// another one.
func (a *acquisition) queue() (*Lock, error) {
	bounds := driver.BoundsOf(a.c.d, a.r.leaseLength())
	a.most = bounds.MaxTTL
	if a.most > 0 && a.r.minHold > a.most {
		return nil, fmt.Errorf("%w: a minimum hold of %v: this store gives at most %v", ErrUnsupported, a.r.minHold, a.most)
	}
	a.req = a.request(max(a.r.leaseLength(), bounds.MinTTL))
	pause := retry.Usual()
	for rejoins := false; ; {
		a.req.ID = newID()
		k, err := a.ticket()
		switch {
		case err == nil:
			return k, nil
		case (a.try || a.Err() != nil) && errors.Is(err, driver.ErrLost):
			return nil, a.neverHeld(err)
		case a.try || a.Err() != nil:
			return nil, err
		case errors.Is(err, driver.ErrLost), a.sure && errors.Is(err, ErrUnavailable):
			rejoins = true
			a.c.notify(a.parent, a.event(EventRejoined, err))
			a.setDue()
		case !rejoins || !errors.Is(err, ErrUnavailable):
			return nil, err
		}
		if !retry.Sleep(a, pause.Next(), nil) {
			return nil, a.neverHeld(err)
		}
	}
}

// neverHeld explains the error of the last ticket. That ticket may be lost, or the lease of
// a grant that came late, but no lock that the caller had: ErrLost becomes text.
func (a *acquisition) neverHeld(err error) error {
	if errors.Is(err, driver.ErrLost) {
		if err = errors.New(err.Error()); a.Err() == nil {
			return because(err, ErrUnavailable)
		}
	}
	return a.explain(err)
}

// request makes the driver's request for a lease of ttl, without the ID.
func (a *acquisition) request(ttl time.Duration) driver.Request {
	r := &a.r
	req := driver.Request{
		Name: a.name, Owner: r.owner, Note: r.note,
		Shared: r.shared, Limit: r.limit,
		TTL: ttl, Renewed: !r.fixed, Wait: !a.try, MinHold: r.minHold,
	}
	if !a.try {
		req.Joined = a.joined
	}
	return req
}

// ticket asks the store for a grant, with one ticket, and makes a lease of it. If that fails
// and the store may have the ticket, the ticket is removed; after undoWait, in the background.
func (a *acquisition) ticket() (*Lock, error) {
	a.sure = false
	if a.c.removals.full.Load() {
		return nil, errFull
	}
	g, asked, err := a.grant()
	if err == nil {
		a.sure = false // it is granted
		k, err := a.adopt(g, asked, false)
		if err != nil {
			a.c.removals.orphan(a.req.Hold(g.Token), false)
		}
		return k, err
	}
	switch {
	case errors.Is(err, driver.ErrNotAcquired):
		return nil, err
	case errors.Is(err, driver.ErrLost) && a.Err() == nil:
		return nil, err
	case !errors.Is(err, driver.ErrNoTicket):
		a.c.removals.orphan(a.req.Hold(0), !a.sure)
	}
	return nil, a.neverHeld(err)
}

// grant asks the store for a grant. asked is Grant.Asked by the core's clock.
func (a *acquisition) grant() (g driver.Grant, asked time.Time, err error) {
	c := a.c
	offset := c.clock.offsetAt(a.begun)
	g, err = c.d.Acquire(a, a.req)
	if err == nil || errors.Is(err, driver.ErrNotAcquired) {
		c.answered()
	}
	if a.most > 0 && (g.TTL == 0 || g.TTL > a.most) {
		g.TTL = a.most // the driver need not say what its bounds say (D10)
	}
	switch {
	case err == nil && a.removed:
		err = context.Cause(a)
	case err == nil && g.TTL > 0 && c.margin >= g.TTL:
		err = fmt.Errorf("%w: a safety margin of %v: this store gives a lease of %v", ErrUnsupported, c.margin, g.TTL)
	}
	return g, g.Asked.Add(offset), err
}

// adopt makes a lease of a grant, unless the lease is over already or the Client
// was closed meanwhile. If the lease is too short to be handed over, it is renewed once
// before its caller gets it.
func (a *acquisition) adopt(g driver.Grant, asked time.Time, renewed bool) (*Lock, error) {
	c := a.c
	now := c.clock.recent()
	if now.Sub(asked) > suspendCheckAfter {
		now = c.clock.now()
	}
	l := newLease(c.core, &a.r, &a.req, g, asked, now)
	l.first.c = c
	l.owned = a.owned
	if len(c.observers) > 0 {
		// Nobody delivers what others queue once the lease is added, before EventAcquired.
		l.observed = &observed{ctx: context.WithoutCancel(a.parent), id: a.id, delivering: true}
	}
	if !renewed && (a.isClaim(g) || l.isBrief(now)) {
		return a.renewFirst(g, asked, l.validUntil)
	}
	if err := c.leases.add(l, now); err != nil {
		return nil, err
	}
	a.granted = true
	if l.observed != nil {
		e := l.event(EventAcquired, time.Since(a.begun), nil)
		e.Waited, e.Degraded = a.waited, g.Degraded
		l.deliverFirst(queuedEvent{a.parent, e})
	}
	return &l.first, nil
}

// isClaim reports whether a grant is no more than a claim to the lock, since its provisional
// lease is too short: its safety margin leaves too little time to renew it on schedule, or
// the minimum hold, which has to outlast this process, is longer.
func (a *acquisition) isClaim(g driver.Grant) bool {
	return g.Claim > 0 && (a.c.margin > g.Claim/3 || a.r.minHold > g.Claim)
}

// leastPatience is how long a renewal may take, however little is left of the lease.
const leastPatience = 50 * time.Millisecond

// renewFirst renews the lease of a grant before its caller gets it. The lease may be over by
// the clock: the machine may have been suspended while the ticket waited. If the renewal
// fails, or the call has ended, the caller gets the grant as it came, while that is valid and
// more than a claim. So a request that hangs is given up after a third of the validity, in time
// for the schedule to renew the lease. If there is too little time for that, the store is asked
// again, and gets the usual time for an answer.
func (a *acquisition) renewFirst(g driver.Grant, came, validUntil time.Time) (*Lock, error) {
	c := a.c
	usual, cancel := context.WithTimeoutCause(a, c.answerTimeout, noAnswer(c.answerTimeout))
	defer cancel()
	ctx, asked, err := usual, c.clock.now(), usual.Err()
	usable := !a.isClaim(g) && asked.Before(validUntil)
	if usable {
		ctx, cancel = context.WithTimeout(usual, max(validUntil.Sub(asked)/3, leastPatience))
		defer cancel()
	}
	a.setDue()
	if err == nil {
		err = c.d.Renew(ctx, a.req.Hold(g.Token), a.req.TTL)
	}
	givenUp := err != nil && ctx.Err() != nil && usual.Err() == nil && !errors.Is(err, driver.ErrLost)
	if now := c.clock.now(); givenUp && validUntil.Sub(now) < 2*leastPatience {
		asked = now
		err = c.d.Renew(usual, a.req.Hold(g.Token), a.req.TTL)
	}
	switch {
	case err == nil:
		g.Claim = 0
		return a.adopt(g, asked, true)
	case errors.Is(err, driver.ErrLost):
		return nil, err
	case usable && c.clock.now().Before(validUntil):
		return a.adopt(g, came, true)
	case a.Err() == nil:
		err = c.silent(usual, err)
	}
	return nil, a.explain(err)
}

// joined is called when the store has confirmed that the ticket is queued. If the call ends
// while the observers run, the ticket is removed without them.
func (a *acquisition) joined() {
	a.sure = true
	a.c.answersAgain()
	a.setQueued(driver.BoundsOf(a.c.d, a.req.TTL).Silence == 0)
	if a.owned != nil {
		a.c.leases.joined(a.owned)
	}
	if a.waited || len(a.c.observers) == 0 {
		return
	}
	added, h := make(chan struct{}), a.req.Hold(0)
	stop := context.AfterFunc(a, func() {
		defer close(added)
		a.c.removals.add(removal{hold: h})
	})
	defer func() {
		if a.removed = !stop(); a.removed {
			<-added
		}
	}()
	a.notifyWaiting()
}

// notifyWaiting notifies the observers, once, that the call waits.
func (a *acquisition) notifyWaiting() {
	if a.waited || len(a.c.observers) == 0 {
		return
	}
	a.waited = true
	e := a.event(EventWaiting, nil)
	e.Waited = false
	a.c.notify(a.parent, e)
}

// failed notifies the observers that the call has failed.
func (a *acquisition) failed(err error) {
	if len(a.c.observers) > 0 && !a.granted {
		a.c.notify(a.parent, a.event(EventFailed, err))
	}
}

// event is an Event of the acquisition.
func (a *acquisition) event(kind EventKind, err error) Event {
	return Event{
		Kind: kind, ID: a.id, Name: a.name, Owner: a.r.owner, Shared: a.r.shared,
		Elapsed: time.Since(a.begun), Waited: a.waited, Err: err,
	}
}

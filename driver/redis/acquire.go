package redis

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/handoff"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// Acquire implements driver.Driver, in one request. A waiter that is granted has a
// provisional lease, which one more request confirms: the core sends it, or this method
// if the wait was long.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.life.Closed() {
		return driver.Grant{}, driver.ErrClosed
	}
	if err := d.mayUse(ctx, r.Name, true); err != nil {
		return driver.Grant{}, driver.NoTicket(err) // no ticket was requested before
	}
	if !r.Wait {
		return d.try(ctx, r)
	}
	if !d.listener.Up() && !d.listener.Refused() {
		// Subscribe before enqueueing, so that the grant cannot be missed. Perhaps
		// there is no need to wait.
		g, a, err := d.ask(ctx, r, false)
		queued := err == nil && !a.granted // by an earlier request
		if !queued && !errors.Is(err, driver.ErrNotAcquired) {
			return g, err
		}
		if err := d.await(ctx); err != nil {
			if queued {
				return driver.Grant{}, err
			}
			return driver.Grant{}, d.noTicket(r, err)
		}
	}
	g, err := d.enqueue(ctx, r)
	if errors.Is(err, driver.ErrLost) && d.unanswered.Requests(r.ID) > 0 {
		err = d.removed(ctx, r, err)
	}
	return g, err
}

// ask sends the request once.
func (d *Driver) ask(ctx context.Context, r driver.Request, wait bool) (driver.Grant, answer, error) {
	asked := time.Now()
	c := d.acquireCall(r, wait)
	v, err := d.do(ctx, c)
	d.unanswered.Note(c, err)
	if err != nil {
		if c.Sent() == 0 || c.Sent() == 1 && redisqueue.Refused(err) {
			err = d.noTicket(r, err)
		}
		return driver.Grant{}, answer{}, err
	}
	a, err := parseAcquire(v)
	if err == nil && a.granted {
		err = redisqueue.Unavailable(c.Acked())
	}
	return driver.Grant{Token: a.token, Asked: asked}, a, err
}

// noTicket marks an error after which there is no ticket, unless another request for it may still arrive.
func (d *Driver) noTicket(r driver.Request, err error) error {
	if d.unanswered.Requests(r.ID) > 0 {
		return err
	}
	return driver.NoTicket(err)
}

// try asks for a grant now. If the request was sent more than once, another copy of it may arrive after the one
// that was refused, and the ticket may be queued by an earlier request that waited. So try releases the ticket before
// it reports that there is none.
func (d *Driver) try(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, a, err := d.ask(ctx, r, false)
	queued := err == nil && !a.granted
	if queued {
		g, err = driver.Grant{}, driver.ErrNotAcquired
	}
	if queued || errors.Is(err, driver.ErrNotAcquired) && d.unanswered.Requests(r.ID) > 0 {
		err = d.removed(ctx, r, err)
	}
	return g, err
}

// removed returns err, which says that there is no ticket, or why its release has failed. The release leaves a tombstone
// for other sendings of the request, which may still arrive.
func (d *Driver) removed(ctx context.Context, r driver.Request, err error) error {
	if failed := d.Release(ctx, r.Hold(0)); failed != nil && !errors.Is(failed, driver.ErrLost) {
		return failed
	}
	return err
}

// A waiter is a ticket of this process that is not known to be granted.
type waiter struct {
	handoff.Waiter
	released bool        // a release of the ticket was asked for; Driver.mu guards it
	notices  chan notice // holds the last notice
}

// notice is a notification to a waiter.
type notice struct {
	gone        bool          // the ticket has left the queue; else it is granted
	token       string        // with which it is granted; empty: a heartbeat has found the ticket granted, or it was handed the lock
	provisional time.Duration // how long the grant lasts unless it is confirmed; 0: unknown
}

// enqueue takes a ticket and waits for its grant. The grant's notification may come before the answer to the
// request for the ticket.
func (d *Driver) enqueue(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	w := &waiter{notices: make(chan notice, 1)}
	d.mu.Lock()
	d.waiters[r.ID] = w
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.waiters, r.ID)
		d.mu.Unlock()
		select {
		case n := <-w.notices:
			if n.gone && err == nil { // broken since the grant; from now on notified tells the core
				g, err = driver.Grant{}, driver.ErrLost
			}
		default:
		}
	}()
	g, a, err := d.ask(ctx, r, true)
	if err != nil || a.granted {
		return g, err
	}
	ticket := redisqueue.Kind(r.Shared) + r.ID
	d.heartbeats.Enter(r.Name, ticket, g.Asked, a.outlook)
	defer d.heartbeats.Leave(r.Name, ticket)
	if a.before != "" && d.mayHand(r) {
		w.Waiter = handoff.Waiter{ID: r.ID, Before: a.before, Asked: g.Asked, Queued: queuedFor}
		defer d.handoff.Leave(r.ID)
		d.mu.Lock()
		if !w.released {
			d.handoff.Enter(&w.Waiter)
		}
		d.mu.Unlock()
	}
	if r.Joined != nil {
		r.Joined()
	}
	for token := strconv.FormatUint(g.Token, 10); ; {
		select {
		case n := <-w.notices:
			switch {
			case n.gone:
				return driver.Grant{}, driver.ErrLost
			case n.token == token, n.token == "":
				return d.granted(ctx, r, g, n.provisional)
			}
			// It is late: an earlier request for this ticket was granted, and that lease has ended.
		case <-ctx.Done():
			return driver.Grant{}, errors.Join(context.Cause(ctx), d.heartbeats.Errs(r.Name)[0])
		case <-d.life.Done():
			return driver.Grant{}, driver.ErrClosed
		}
	}
}

// granted returns the provisional lease of a ticket that has not waited long. The server granted the ticket after
// it had queued it, so the lease counts from when the ticket was requested. The grant is confirmed first if the
// wait was long, if replicas have to acknowledge it, if the lease has to last though the process ends, or if the
// lease is shorter than the provisional one.
func (d *Driver) granted(ctx context.Context, r driver.Request, g driver.Grant, provisional time.Duration) (driver.Grant, error) {
	sure := d.durable || r.MinHold > 0 || r.TTL < provisional
	length := provisional
	if sure || time.Since(g.Asked) > provisional/2 {
		var err error
		if g, err = d.confirm(ctx, r, g); err != nil {
			return g, err
		}
		length = r.TTL
	} else {
		g.Claim = provisional
	}
	d.handoff.Holds(r.ID, g.Asked.Add(length))
	return g, nil
}

// Pauses before a confirmation that the server has not answered is sent again.
const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

// confirm begins the lease of a ticket that was granted. ErrLost says that the
// provisional lease has ended.
func (d *Driver) confirm(ctx context.Context, r driver.Request, g driver.Grant) (driver.Grant, error) {
	for pause := (retry.Backoff{First: retryFirst, Most: retryMost}); ; {
		g.Asked = time.Now()
		err := d.Renew(ctx, r.Hold(g.Token), r.TTL)
		if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, redisqueue.ErrReplicas) || errors.Is(err, driver.ErrClosed) {
			return g, err
		}
		if !retry.Sleep(ctx, pause.Next(), d.life.Done()) {
			return driver.Grant{}, ended(ctx, cmp.Or(d.heartbeats.Errs(r.Name)[0], err))
		}
	}
}

// notified is called with each notification to this process.
func (d *Driver) notified(text string) {
	if text == "" {
		return
	}
	what := text[1:]
	switch text[0] {
	case redisqueue.NoticeGrant:
		ms, rest, _ := strings.Cut(what, " ")
		if token, id, _ := strings.Cut(rest, " "); token != "" {
			d.notify(id, notice{provisional: provisionalLease(ms), token: token})
		}
	case redisqueue.NoticeCheck:
		if name, ok := d.keys.Name(what); ok {
			d.heartbeats.Poll(name)
		}
	case redisqueue.NoticeLost:
		h, ok := redisqueue.ParseLoss(what)
		if !ok {
			return
		}
		d.handoff.Lost(h.ID)
		if !d.notify(h.ID, notice{gone: true}) && d.notifyLoss != nil {
			d.notifyLoss(h, redisqueue.ErrRemoved)
		}
	}
}

// provisionalLease reads the length of a provisional lease. It is 0, so that the grant is confirmed first, if it is longer
// than any that the scripts give.
func provisionalLease(ms string) time.Duration {
	n, err := strconv.ParseInt(ms, 10, 64)
	if err != nil || n < 0 || n > redisqueue.Liveness.Milliseconds() {
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

// notify notifies a waiter, and reports whether it is one.
func (d *Driver) notify(id string, n notice) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.waiters[id]
	if w == nil {
		return false
	}
	select {
	case old := <-w.notices: // of two notices, the last one counts, unless the ticket has gone
		n.gone = n.gone || old.gone
	default:
	}
	w.notices <- n
	return true
}

// keepAlive sends a heartbeat.
func (d *Driver) keepAlive(_ int, name string, tickets []string, answer func(any, error)) {
	d.life.Go(func() {
		ctx, cancel := context.WithTimeoutCause(d.ctx, heartbeatBound, errNoAnswer)
		defer cancel()
		begun := time.Now()
		v, err := d.do(ctx, d.keys.HeartbeatCall(redisqueue.KeepAlive, d.keys.All(d.keys.Main(name)), d.channel, tickets))
		if redisqueue.Unsubscribed(v) {
			d.listener.Renew(begun)
		}
		answer(v, err)
	})
}

// receivedState handles a ticket's state in the answer to a heartbeat.
func (d *Driver) receivedState(_ int, ticket string, state int64, _ bool) {
	switch state {
	case redisqueue.IsGone:
		d.notify(ticket[1:], notice{gone: true})
	case redisqueue.IsHeld:
		d.notify(ticket[1:], notice{})
	}
}

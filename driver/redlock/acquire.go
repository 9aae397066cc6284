package redlock

import (
	"cmp"
	"context"
	"errors"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// ticket is what this process knows of a ticket that it has requested. Driver.mu guards
// waiter, until, released and breaks.
type ticket struct {
	r        driver.Request
	key      string
	bucket   string
	record   string
	number   uint64       // final once it is queued, or holds, on a majority
	begun    int64        // attempts before the first one
	attempts atomic.Int64 // grows with each proposal, by one goroutine at a time
	waiter   *waiter      // it is waited for; else nil
	until    time.Time    // held: the end of the lease on a majority; else zero
	released bool         // it is being removed from all nodes

	breaks map[int]time.Time // when nodes have notified that Break removed it there
}

// newTicket makes the ticket of a request, without its Joined. That refers to the whole
// call of Acquire, which would live as long as the lease. Its attempts begin with the time:
// a request that is repeated overtakes all that was proposed for it before.
func (d *Driver) newTicket(r driver.Request) *ticket {
	r.Joined = nil
	t := &ticket{
		r: r, key: d.keys.Main(r.Name), bucket: bucket(r.Name), record: redisqueue.Record(d.channel, r),
		begun: time.Now().UnixMicro(),
	}
	t.attempts.Store(t.begun)
	d.mayLast(r.TTL)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tickets[r.ID] = t // before it is asked for: Break may remove it before it is known that it holds
	return t
}

func (t *ticket) held() bool { return !t.until.IsZero() }

// Acquire implements driver.Driver. Without contention it is one request to each
// node, all at once, and with contention two: to queue and, when granted, to
// confirm.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	t := d.newTicket(r) // from now on a release is noted
	granted := false
	defer func() {
		if granted {
			return
		}
		d.mu.Lock() // also after a panic of an observer
		defer d.mu.Unlock()
		if d.tickets[r.ID] == t {
			delete(d.tickets, r.ID)
		}
	}()
	if err := d.mayUse(ctx, r.Name, true); err != nil {
		return driver.Grant{}, driver.NoTicket(err) // no ticket was requested before
	}
	g, err := d.acquire(ctx, t, r)
	granted = err == nil
	return g, err
}

func (d *Driver) acquire(ctx context.Context, t *ticket, r driver.Request) (driver.Grant, error) {
	if !r.Wait {
		return d.try(ctx, t, splits)
	}
	if d.subscriptionError() != nil {
		// Subscribe before enqueueing, so that the grant cannot be missed. Perhaps
		// there is no need to wait.
		g, err := d.try(ctx, t, 0)
		if !errors.Is(err, driver.ErrNotAcquired) {
			return g, err
		}
		if err := d.await(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
	return d.enqueue(ctx, t, r.Joined)
}

// splits is how often a try asks again when no try got a majority.
const splits = 5

// try asks for a grant now.
func (d *Driver) try(ctx context.Context, t *ticket, again int) (driver.Grant, error) {
	number, origin := d.numbers.guess(), byte(guessed)
	for {
		p, err := d.ask(ctx, t, number, orLeave, origin)
		switch {
		case err != nil:
			return driver.Grant{}, err
		case p.outcome == granted:
			return d.grant(t, p)
		case p.outcome != notNow && p.outcome != split:
			return driver.Grant{}, p.failure()
		}
		err = d.giveBack(ctx, t, p)
		if again--; p.outcome == notNow || again < 0 || !errors.Is(err, driver.ErrNotAcquired) {
			return driver.Grant{}, err
		}
		if !retry.Sleep(ctx, time.Millisecond+rand.N(4*time.Millisecond), d.life.Done()) { //nolint:gosec // no secret
			return driver.Grant{}, cmp.Or(context.Cause(ctx), driver.ErrClosed)
		}
		number, origin = p.next()
	}
}

// giveBack removes a ticket from the nodes on which it holds, which were too few. It
// waits for those that have answered; on the others the ticket is removed in the
// background.
func (d *Driver) giveBack(ctx context.Context, t *ticket, p *proposal) error {
	sure, perhaps := p.given()
	gone := d.removal(t.r.Hold(0), p.attempt)
	for _, n := range d.nodes {
		if perhaps&(1<<n.index) != 0 {
			d.releaseOn(n, gone)
		}
	}
	r := newRound(d, readAny)
	r.each = func(node int, _ any, err error) { d.released(d.nodes[node], gone, err) }
	err := r.ask(ctx, func(n *node) *redisqueue.Call {
		if sure&(1<<n.index) == 0 {
			return nil
		}
		return d.releaseCall(n, gone)
	})
	switch {
	case err != nil:
		return err
	case p.outcome == notNow && p.foreign():
		return redisqueue.ErrForeign
	}
	return driver.ErrNotAcquired
}

// enqueue takes a ticket and waits for its grant.
func (d *Driver) enqueue(ctx context.Context, t *ticket, joined func()) (driver.Grant, error) {
	w := d.register(t)
	defer d.depart(w)
	p, err := d.ask(ctx, t, d.numbers.guess(), orWait, guessed)
	if err == nil && p.silent() { // the nodes may be slow, and have the ticket
		p, err = d.ask(ctx, t, p.number, orWait, guessed)
	}
	switch {
	case err != nil:
		return driver.Grant{}, err
	case p.outcome == granted:
		return d.grant(t, p)
	case p.outcome != inQueue:
		return driver.Grant{}, p.failure()
	}
	t.number = p.number
	d.yield(w, p)
	d.heartbeats.Enter(t.r.Name, t.inQueue(), p.asked, p.outlooks()...)
	defer d.heartbeats.Leave(t.r.Name, t.inQueue())
	d.settle(w)
	if joined != nil {
		joined()
	}
	return d.wait(ctx, w)
}

// inQueue is what heartbeats call the ticket.
func (t *ticket) inQueue() string { return redisqueue.Kind(t.r.Shared) + t.r.ID }

// grant notes that a ticket holds, unless it was released or broken while the proposal was under way.
func (d *Driver) grant(t *ticket, p *proposal) (driver.Grant, error) {
	d.mu.Lock()
	t.number = p.number
	if t.released || bits.OnesCount64(d.brokenOn(t)) > d.minority() {
		d.mu.Unlock()
		return driver.Grant{}, d.lost(t)
	}
	t.until = p.asked.Add(t.r.TTL)
	var may uint64
	if t.waiter != nil {
		may = t.waiter.may
	}
	broken := d.brokenOn(t) != 0
	d.mu.Unlock()
	p.mend(may)
	if broken {
		d.recheck(t)
	}
	return driver.Grant{Token: p.number, Asked: p.asked}, nil
}

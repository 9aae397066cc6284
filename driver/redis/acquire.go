package redis

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
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
		return driver.Grant{}, driver.NoTicket(err) // none was asked for before
	}
	if !r.Wait {
		g, _, err := d.ask(ctx, r, false)
		return g, err
	}
	if !d.listener.Up() {
		// Subscribe before enqueueing, so that the grant cannot be missed. Perhaps
		// there is no need to wait.
		g, _, err := d.ask(ctx, r, false)
		if !errors.Is(err, driver.ErrNotAcquired) {
			return g, err
		}
		if err := d.await(ctx); err != nil {
			return driver.Grant{}, driver.NoTicket(err)
		}
	}
	return d.enqueue(ctx, r)
}

// ask sends the request once.
func (d *Driver) ask(ctx context.Context, r driver.Request, wait bool) (driver.Grant, answer, error) {
	asked := time.Now()
	c := d.acquireCall(r, wait)
	v, err := d.do(ctx, c)
	if err != nil {
		if noTicket := c.Sent() == 0 || c.Sent() == 1 && redisqueue.Refused(err); noTicket && d.unanswered.Requests(r.ID) == 0 {
			return driver.Grant{}, answer{}, driver.NoTicket(err)
		}
		d.unanswered.Note(c, err)
		return driver.Grant{}, answer{}, err
	}
	a, err := parseAcquire(v)
	if err == nil && a.granted {
		err = redisqueue.Unavailable(c.Acked())
	}
	return driver.Grant{Token: a.token, Asked: asked}, a, err
}

// A waiter is a ticket of this process that is not known to be granted.
type waiter struct {
	told chan notice // holds the last one
}

// notice is what the process of a waiter is told.
type notice struct {
	gone        bool          // the ticket has left the queue; else it is granted
	provisional time.Duration // how long the grant stands before it is confirmed; 0: not told
}

// enqueue takes a ticket and waits for its grant, of which the process may be told before
// the request for the ticket is answered.
func (d *Driver) enqueue(ctx context.Context, r driver.Request) (driver.Grant, error) {
	w := &waiter{told: make(chan notice, 1)}
	d.mu.Lock()
	d.waiters[r.ID] = w
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.waiters, r.ID)
		d.mu.Unlock()
	}()
	g, a, err := d.ask(ctx, r, true)
	if err != nil || a.granted {
		return g, err
	}
	ticket := redisqueue.Kind(r.Shared) + r.ID
	d.heartbeats.Enter(r.Name, ticket, r.TTL, g.Asked, redisqueue.Sight{Outlook: a.outlook})
	defer d.heartbeats.Leave(r.Name, ticket)
	if r.Joined != nil {
		r.Joined()
	}
	select {
	case n := <-w.told:
		if n.gone {
			return driver.Grant{}, driver.ErrLost
		}
		return d.granted(ctx, r, g, n.provisional)
	case <-ctx.Done():
		return driver.Grant{}, errors.Join(context.Cause(ctx), d.outage(r.Name))
	case <-d.life.Closing:
		return driver.Grant{}, driver.ErrClosed
	}
}

// granted answers with the provisional lease of a ticket that has not waited long: the
// server granted it after it had taken the ticket, so that it counts from when that was
// asked for at the earliest. Not where replicas have to acknowledge the grant first, nor where the
// lease has to last though the process ends, nor where the lease is shorter.
func (d *Driver) granted(ctx context.Context, r driver.Request, g driver.Grant, provisional time.Duration) (driver.Grant, error) {
	sure := d.durable || r.MinHold > 0 || r.TTL < provisional
	if sure || time.Since(g.Asked) > provisional/2 {
		return d.confirm(ctx, r, g)
	}
	g.Claim = provisional
	return g, nil
}

// Intervals at which a grant is confirmed again that the server has not answered for.
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
		if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, redisqueue.ErrReplicas) ||
			errors.Is(err, driver.ErrClosed) || isContextEnd(ctx, err) {
			return g, err
		}
		if !retry.Sleep(ctx, pause.Next(), d.life.Closing) {
			return driver.Grant{}, ended(ctx, err)
		}
	}
}

// outage is what keeps the waiters for a name from hearing of the store, if anything.
func (d *Driver) outage(name string) error {
	return errors.Join(d.heartbeats.Errs(name)[0], redisqueue.Unavailable(d.listener.Err()))
}

// hear is called with each notification to this process.
func (d *Driver) hear(text string) {
	if text == "" {
		return
	}
	what := text[1:]
	switch text[0] {
	case noticeGranted:
		ms, id, _ := strings.Cut(what, " ")
		provisional, _ := strconv.ParseInt(ms, 10, 64) // not told: to be confirmed first
		d.notify(id, notice{provisional: time.Duration(provisional) * time.Millisecond})
	case noticeGone:
		d.notify(what, notice{gone: true})
	case noticeLook:
		ms, key, _ := strings.Cut(what, " ")
		after, err := strconv.Atoi(ms)
		if name, ok := d.keys.Name(key); err == nil && ok {
			d.heartbeats.Look(name, time.Duration(after+1)*time.Millisecond)
		}
	case noticeLost:
		if h, ok := redisqueue.ParseLoss(what); ok && d.tell != nil {
			d.tell(h, redisqueue.ErrRemoved)
		}
	}
}

// notify tells a waiter.
func (d *Driver) notify(id string, n notice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := d.waiters[id]
	if w == nil {
		return
	}
	select {
	case <-w.told: // of two, the last one holds
	default:
	}
	w.told <- n
}

// keepAlive sends a heartbeat.
func (d *Driver) keepAlive(_ int, name string, tickets []string, answer func(any, error)) {
	d.life.Go(func() {
		ctx, cancel := context.WithTimeout(d.ctx, heartbeatBound)
		defer cancel()
		args := make([]any, 0, 1+len(tickets))
		args = append(args, d.channel)
		for _, t := range tickets {
			args = append(args, t)
		}
		v, err := d.do(ctx, d.call(redisqueue.KeepAlive, d.keys.All(d.keys.Main(name)), args...))
		if errors.Is(err, context.DeadlineExceeded) {
			err = driver.Unavailable(errNoAnswer)
		}
		answer(v, err)
	})
}

// heard takes in how a ticket stands.
func (d *Driver) heard(_ int, ticket string, state int64, _ bool) {
	switch state {
	case redisqueue.IsGone:
		d.notify(ticket[1:], notice{gone: true})
	case redisqueue.IsHeld:
		d.notify(ticket[1:], notice{})
	}
}

package casqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
)

// state is where a ticket of this process is.
type state uint8

const (
	waiting  state = iota
	claiming       // it is granted, and its lease is being written
	held
	ended
)

// ticket is a ticket of this process that waits or is held. Engine.mu guards what is not constant.
type ticket struct {
	name, id string
	ttl      time.Duration // of its record
	renewed  bool          // the request allows heartbeats to renew its lease
	minHold  bool          // the request has a minimum hold
	file     *file

	state     state
	leased    bool      // its record says that it is held
	fixed     bool      // its record says that heartbeats do not renew its lease
	shortened bool      // the change that ends its lease sooner is being written: no renewal follows
	last      *change   // of its lease, that was applied and is not written yet: it may shorten the lease, so the next renewal is written
	polls     bool      // its record says that its process reads the queue: nobody notifies it
	promised  time.Time // its lease must not end before
	ahead     int       // how many waiters were ahead of it at the last reading
	moved     time.Time // when that number last fell, or when it began to wait
	since     time.Time // when it was granted

	// alive is when the life of the ticket began: when the request was sent that wrote its record, or the last
	// heartbeat that was answered before the life that it replaces was over. No other process concludes that the
	// ticket is dead before alive, its life and the margin have passed. After its life a heartbeat does not help,
	// because another process may have read the previous one and be about to remove the ticket.
	alive time.Time

	callers int // of Acquire that wait
	done    chan struct{}
	grant   driver.Grant
	err     error
}

// life is how long the ticket lives after alive.
func (t *ticket) life() time.Duration { return lifeOf(t.ttl, t.leased) }

// lapsed reports whether the ticket may be dead to others. With mu held.
func (t *ticket) lapsed(now time.Time) bool { return now.Sub(t.alive) > t.life() }

// renewable reports whether a heartbeat that is answered now renews the ticket. After a suspension of the machine it does not, and
// after a step of the wall clock: then the record has to be written. With mu held.
func (t *ticket) renewable(now time.Time) bool { return life.Elapsed(t.alive, now) <= t.life() }

// Acquire implements driver.Driver.
func (e *Engine) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	asked := r.TTL
	if r.TTL = e.lease(asked); r.TTL < r.MinHold {
		return driver.Grant{}, driver.NoTicket(fmt.Errorf("%w: a minimum hold of %v: leases have at most %v", driver.ErrUnsupported, r.MinHold, r.TTL))
	}
	ctx, done := e.bind(ctx)
	defer done()
	t, g, err := e.enter(ctx, &r)
	if errors.Is(err, driver.ErrNotAcquired) && e.consult(ctx, e.file(r.Name), true) {
		t, g, err = e.enter(ctx, &r)
	}
	if t != nil {
		g, err = e.wait(ctx, t, &r)
	}
	if r.TTL < asked {
		g.TTL = r.TTL
	}
	return g, err
}

// wait waits for the grant of a ticket.
func (e *Engine) wait(ctx context.Context, t *ticket, r *driver.Request) (driver.Grant, error) {
	if r.Joined != nil {
		r.Joined()
	}
	select {
	case <-t.done:
		return t.grant, t.err
	case <-ctx.Done():
		e.mu.Lock()
		e.leave(t)
		e.mu.Unlock()
		return driver.Grant{}, e.failed(ctx, ctx.Err())
	}
}

// enter queues a ticket, and returns it if it has to wait.
func (e *Engine) enter(ctx context.Context, r *driver.Request) (*ticket, driver.Grant, error) {
	key := e.key(r.Name)
	defer e.entered(key)
	e.mu.Lock()
	e.entering[key]++
	e.mu.Unlock()
	var placed record
	var written, none bool // none: there is no ticket, and there will be none
	var t *ticket
	var grant driver.Grant
	c := &change{queues: true}
	c.apply = func(d *document, fresh bool) (changed bool, err error) {
		if err := ctx.Err(); err != nil { // the caller left while the document was read
			return false, err
		}
		placed, written, changed, err = e.place(d, key, r, fresh)
		c.waits = r.Wait && placed.Lease == 0 && len(e.fileOf(key).own) == 0
		return changed, err
	}
	c.done = func(sent time.Time, err error) {
		if !written {
			sent = time.Time{} // the write was of other changes, and is no sign of life of this ticket
		}
		if err == nil {
			t = e.enlist(key, r, &placed, sent)
			grant = driver.Grant{Token: placed.Token, Asked: sent}
		} else { // the store may have done an earlier request for it, or may do it yet
			f := e.fileOf(key)
			none = !c.unsure && !f.unanswered && f.doc.find(r.Name).index(r.ID) < 0
		}
		if t != nil && ctx.Err() != nil { // its caller has left
			e.leave(t)
		}
	}
	err := e.change(ctx, key, c)
	if err == nil {
		return t, grant, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if none && !errors.Is(err, driver.ErrNotAcquired) {
		err = driver.NoTicket(err)
	}
	return nil, driver.Grant{}, err
}

// place puts a ticket at the tail, and begins its lease if it is granted. A ticket that is queued already,
// because the request is repeated or its answer was lost, keeps its position: it is written only if it is granted.
// With mu held.
func (e *Engine) place(d *document, key string, r *driver.Request, fresh bool) (placed record, written, changed bool, err error) {
	q := d.open(r.Name, e.highest)
	f := e.fileOf(key)
	reaped := e.reap(q)
	i := q.index(r.ID)
	added := i < 0
	if added {
		q.add(r, e.process)
		i = len(q.Tickets) - 1
	}
	switch {
	case driver.Grantable(q.views(), i):
		q.Tickets[i].hold(max(r.TTL, q.Tickets[i].TTL), !r.Renewed)
		return q.Tickets[i], true, true, nil
	case r.Wait:
		if added {
			q.Tickets[i].Polls = e.polls(f)
		}
		return q.Tickets[i], added, added || reaped, nil
	case !fresh:
		return placed, false, false, errStale
	}
	q.remove(i)
	return placed, false, reaped || !added, driver.ErrNotAcquired
}

// entered notes that a ticket for which this process asked is queued, or is not.
func (e *Engine) entered(key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.entering[key]--; e.entering[key] == 0 {
		delete(e.entering, key)
	}
}

// polls reports whether this process reads the queue of a new ticket to learn of its grant: it neither waits nor comes
// anywhere else, and the queue is small. With mu held.
func (e *Engine) polls(f *file) bool {
	if _, ok := e.store.(Watcher); ok || f.bytes > smallQueue || len(e.entering) > 1 {
		return false
	}
	for t := range e.waiting {
		if t.file != f {
			return false
		}
	}
	return true
}

// enlist notes a ticket that was placed, and returns it if it has to wait. If sent is zero, its record was in the
// document already. With mu held.
func (e *Engine) enlist(key string, r *driver.Request, placed *record, sent time.Time) *ticket {
	t := e.tickets[r.ID]
	if t == nil {
		t = &ticket{
			name: r.Name, id: r.ID, ttl: r.TTL, renewed: r.Renewed, minHold: r.MinHold > 0, alive: sent,
			file: e.fileOf(key), done: make(chan struct{}),
		}
		e.tickets[r.ID] = t
		t.file.own = append(t.file.own, t)
	}
	if placed.Lease > 0 {
		e.hold(t, placed, sent, r.TTL)
		return nil
	}
	t.callers++
	e.waiting[t] = struct{}{}
	e.start.Do(func() { e.life.Go(e.attend) })
	e.wakeTask()
	return t
}

// hold notes that the lease of a ticket was written, for a caller who asked for ttl, and ends its wait. With mu held.
func (e *Engine) hold(t *ticket, r *record, sent time.Time, ttl time.Duration) {
	if t.state != held {
		t.since = time.Now()
		t.grant = driver.Grant{Token: r.Token, Asked: sent}
		close(t.done)
	}
	if t.minHold && !t.leased {
		e.notice(func() { _ = e.vouch(e.life, t) })
	}
	t.state, t.leased, t.fixed, t.ttl = held, true, r.Fixed, r.TTL
	t.alive = sent
	if end := sent.Add(ttl); end.After(t.promised) {
		t.promised = end
	}
	delete(e.waiting, t)
}

// leave notes that a caller does not wait any more, and forgets the ticket after the last one: the core releases it. With
// mu held.
func (e *Engine) leave(t *ticket) {
	if t.callers--; t.callers == 0 && t.state != ended {
		e.forget(t)
		e.notice(func() { _ = e.share(e.life, t.file, true) })
	}
}

// forget forgets a ticket. With mu held.
func (e *Engine) forget(t *ticket) {
	t.state = ended
	if e.tickets[t.id] == t {
		delete(e.tickets, t.id)
	}
	t.file.own = slices.DeleteFunc(t.file.own, func(o *ticket) bool { return o == t })
	delete(e.waiting, t)
}

// lose forgets a ticket that is not in the queue any more. With mu held.
func (e *Engine) lose(t *ticket, cause error) {
	if t.state != held {
		t.err = cause
		close(t.done)
	}
	e.forget(t)
}

// learn finds the tickets of this process that the document grants, and those that are not in it any more. Tickets ahead
// of a ticket can only go away, so an old document makes no false grant, and no document is older than what this process
// has written. With mu held.
func (e *Engine) learn(f *file) {
	now := time.Now()
	f.doc.see(now)
	for _, q := range f.doc.Queues {
		e.highest = max(e.highest, q.Last)
	}
	if len(f.own) == 0 {
		return
	}
	there := 0
	for _, q := range f.doc.Queues {
		waiters := 0
		granted := driver.Granted(q.views())
		for i := range q.Tickets {
			t := e.tickets[q.Tickets[i].ID]
			if t != nil {
				there++
			}
			switch {
			case t == nil || t.state != waiting:
			case granted[i]:
				e.granted(t, &q.Tickets[i], now)
			default:
				t.polls = q.Tickets[i].Polls
				t.move(waiters, now)
			}
			if !granted[i] {
				waiters++
			}
		}
	}
	if there < len(f.own) {
		e.loseMissing(f)
	}
}

// move notes how many waiters are ahead of a ticket. With mu held.
func (t *ticket) move(ahead int, now time.Time) {
	if t.moved.IsZero() || ahead < t.ahead {
		t.ahead, t.moved = ahead, now
	}
}

// loseMissing loses the tickets that are not in a document. With mu held.
func (e *Engine) loseMissing(f *file) {
	for _, t := range slices.Clone(f.own) {
		if f.doc.find(t.name).index(t.id) < 0 {
			e.lose(t, errBroken)
		}
	}
}

// granted accepts a grant. If the core renews the lease, and the ticket was certainly alive a moment ago, the lease is
// provisional, and no write is needed. With mu held.
func (e *Engine) granted(t *ticket, r *record, now time.Time) {
	if t.renewed && !t.minHold && r.Lease == 0 && now.Sub(t.alive) < t.life()/2 {
		t.state, t.since = held, now
		delete(e.waiting, t)
		t.grant = driver.Grant{Token: r.Token, Asked: t.alive}
		if t.life() < t.ttl {
			t.grant.Claim = t.life()
		}
		close(t.done)
		return
	}
	t.state = claiming
	e.submit(t.file, e.begin(e.life, t, t.ttl, claiming))
}

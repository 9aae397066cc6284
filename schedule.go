package locker

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// schedule is when something has to be done about which lease: a renewal, the
// end of its trust window, or its removal from the store after that. One
// goroutine of the Client looks after all of them. Client.mu guards it.
type schedule struct {
	leases  leaseHeap
	running bool
	wakeAt  time.Time     // when the goroutine looks next; zero: never
	wake    chan struct{} // look now
}

// Renewals that are due within this part of their TTL go along with a batch.
const slack = 30

// plan puts a lease where it belongs in the schedule. With mu held.
func (c *Client) plan(l *lease) {
	s := &c.schedule
	switch {
	case l.ending:
		l.due = l.storeUntil
	case l.wantsRenewal():
		l.due = l.renewAt
	default:
		l.due = l.validUntil
	}
	if l.index < 0 {
		heap.Push(&s.leases, l)
	} else {
		heap.Fix(&s.leases, l.index)
	}
	if c.closed {
		return
	}
	if !s.running {
		s.running = true
		first := time.Now().Add(linger)
		if l.due.Before(first) {
			first = l.due
		}
		s.wakeAt = first
		c.work.Go(func() { c.look(first) })
		return
	}
	if l.due.Before(s.wakeAt) {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// unplan takes a lease out of the schedule. The goroutine finds out when it
// looks next, so that a cycle of acquire and release need not wake it.
func (c *Client) unplan(l *lease) {
	if l.index >= 0 {
		heap.Remove(&c.schedule.leases, l.index)
	}
}

// linger is how long the goroutine stays without anything in the schedule. A client
// that takes and releases one lock at a time would start it each time.
const linger = time.Second

// look is the goroutine: it does what is due, sleeps until something is, first
// until the given time, and ends when there is nothing in the schedule.
func (c *Client) look(first time.Time) {
	timer := time.NewTimer(time.Until(first))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.schedule.wake:
		case <-c.closing:
			return
		}
		next, ok := c.step()
		if !ok {
			return
		}
		timer.Reset(time.Until(next))
	}
}

// step does what is due now and returns when to look again; false: no more.
func (c *Client) step() (next time.Time, more bool) {
	now := time.Now()
	c.mu.Lock()
	todo := c.collect(now)
	if len(c.schedule.leases) == 0 || c.closed {
		c.schedule.running = false
	} else {
		next, more = c.schedule.leases[0].due, true
		c.schedule.wakeAt = next
	}
	if len(todo.renew) > 0 && !c.closed {
		c.work.Go(func() { c.renew(todo.renew) })
	}
	for _, l := range todo.remove {
		c.work.Go(func() { c.removeEnded(l) })
	}
	c.mu.Unlock()
	for i, l := range todo.lost {
		c.tellLost(l, todo.handles[i], errWindow)
	}
	return next, more
}

// chores is what collect found to do.
type chores struct {
	renew   []*lease
	remove  []*lease
	lost    []*lease
	handles [][]*Lock // of lost
}

// collect takes from the schedule what is due, and with a renewal those that
// are due soon: they share a request. With mu held.
func (c *Client) collect(now time.Time) (todo chores) {
	for len(c.schedule.leases) > 0 {
		l := c.schedule.leases[0]
		isDue := !l.due.After(now)
		switch {
		case l.ending:
			if !isDue {
				return todo
			}
			l.ending = false
			c.unplan(l)
			todo.remove = append(todo.remove, l)
		case !now.Before(l.validUntil):
			todo.lost = append(todo.lost, l)
			todo.handles = append(todo.handles, c.expireLocked(l))
		case l.wantsRenewal() && (isDue || len(todo.renew) > 0 && l.renewAt.Sub(now) <= l.ttl/slack):
			l.renewing = true
			todo.renew = append(todo.renew, l)
			c.plan(l)
		default:
			return todo
		}
	}
	return todo
}

// renew renews a batch, and settles each lease by its own answer.
func (c *Client) renew(batch []*lease) {
	asked := time.Now()
	renewals := make([]driver.Renewal, len(batch))
	c.mu.Lock()
	bound := joinBound
	for i, l := range batch {
		renewals[i] = driver.Renewal{Hold: l.hold, TTL: c.storeTTL(l.ttl)}
		// An attempt that hangs is given up in time for another one.
		left := l.validUntil.Sub(asked)
		bound = min(bound, left, max(left/3, 50*time.Millisecond))
	}
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.finishing, bound)
	defer cancel()
	errs := c.renewAll(ctx, renewals)
	took := time.Since(asked)
	for i, l := range batch {
		c.settle(l, asked, took, errs[i])
	}
}

// renewAll asks the store, in one batch where the driver can.
func (c *Client) renewAll(ctx context.Context, renewals []driver.Renewal) []error {
	if b, ok := c.d.(driver.BatchRenewer); ok {
		return b.RenewAll(ctx, renewals)
	}
	const atOnce = 16
	errs := make([]error, len(renewals))
	slots := make(chan struct{}, atOnce)
	var group sync.WaitGroup
	for i, r := range renewals {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			errs[i] = c.d.Renew(ctx, r.Hold, r.TTL)
		})
	}
	group.Wait()
	return errs
}

// settle takes the answer to one renewal. A lease that was released or lost
// meanwhile is nobody's business any more.
func (c *Client) settle(l *lease, asked time.Time, took time.Duration, err error) {
	if errors.Is(err, driver.ErrLost) {
		c.lose(l, err)
		return
	}
	c.mu.Lock()
	l.renewing = false
	if l.state != held {
		c.mu.Unlock()
		return
	}
	kind := EventRenewed
	if err == nil {
		l.claimed = false
		l.renewedAt(asked, l.ttl, asked.Add(took))
	} else {
		kind = EventRenewFailed
		l.renewAt = time.Now().Add(min(max(l.ttl/30, 5*time.Millisecond), retryMost))
	}
	c.plan(l)
	c.mu.Unlock()
	if len(c.observers) > 0 {
		c.tell(context.Background(), l.event(kind, took, err))
	}
}

// removeEnded takes a lease that ended by the clock off the store, until by
// its own bounds the store has done so.
func (c *Client) removeEnded(l *lease) {
	ctx, cancel := context.WithTimeout(c.finishing, driver.BoundsOf(c.d, l.ttl).Crash)
	defer cancel()
	_ = c.remove(ctx, l.hold) // gone by itself: as wanted
}

// leaseHeap orders leases by due time.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
func (h leaseHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *leaseHeap) Push(x any) {
	l := x.(*lease)
	l.index = len(*h)
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	old := *h
	n := len(old) - 1
	l := old[n]
	old[n] = nil
	*h = old[:n]
	l.index = -1
	return l
}

package memory

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// ticket is one entry of a queue.
type ticket struct {
	d     *Driver
	req   driver.Request
	token uint64
	held  bool
	since time.Time
	until time.Time     // end of a holder's lease
	asked time.Time     // Grant.Asked
	done  chan struct{} // of a waiter: closed when it is granted or removed

	prev, next *ticket
}

// list is a linked list of tickets in the order of their numbers.
type list struct {
	first, last *ticket
	n           int
}

func (l *list) push(t *ticket) {
	t.prev, t.next = l.last, nil
	if l.last == nil {
		l.first = t
	} else {
		l.last.next = t
	}
	l.last = t
	l.n++
}

func (l *list) remove(t *ticket) {
	if t.prev == nil {
		l.first = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.last = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	l.n--
}

// queue is the queue of one name. Its tickets are in two lists, so that a release
// costs the same whatever the number of waiters.
type queue struct {
	s    *store
	name string

	holders   list
	waiters   list
	exclusive int       // tickets in either list
	newest    uint64    // at least the greatest token of a holder
	soonest   time.Time // no holder's lease ends before
	most      int       // at least the greatest limit of a shared waiter
	timer     *time.Timer
}

// grantable reports whether a new ticket at the tail would be granted:
// driver.Grantable on the counts of the queue.
func (q *queue) grantable(r driver.Request) bool {
	ahead := q.holders.n + q.waiters.n
	if !r.Shared {
		return ahead == 0
	}
	return q.exclusive == 0 && (r.Limit == 0 || ahead < r.Limit)
}

// add puts a new ticket at the tail.
func (q *queue) add(d *Driver, r driver.Request, now time.Time) *ticket {
	granted := q.grantable(r)
	t := &ticket{d: d, req: r, token: tokens.Add(1), since: now}
	q.s.tickets[r.ID] = t
	if !r.Shared {
		q.exclusive++
	}
	if granted {
		q.hold(t, now)
		return t
	}
	t.done = make(chan struct{})
	q.waiters.push(t)
	if q.most = max(q.most, r.Limit); r.Shared && r.Limit == 0 {
		q.most = math.MaxInt
	}
	q.arm()
	return t
}

// hold makes a ticket that is in neither list a holder.
func (q *queue) hold(t *ticket, now time.Time) {
	t.held, t.since, t.asked, t.until = true, now, now, now.Add(t.req.TTL)
	if q.holders.n == 0 || t.until.Before(q.soonest) {
		q.soonest = t.until
	}
	q.newest = max(q.newest, t.token)
	q.holders.push(t)
}

// remove removes a ticket from the queue.
func (q *queue) remove(t *ticket) {
	delete(q.s.tickets, t.req.ID)
	if !t.req.Shared {
		q.exclusive--
	}
	if t.held {
		q.holders.remove(t)
		return
	}
	q.removeWaiter(t)
	close(t.done)
}

// removeWaiter removes a ticket from the list of waiters.
func (q *queue) removeWaiter(t *ticket) {
	q.waiters.remove(t)
	if q.waiters.n == 0 {
		q.most = 0
	}
}

// settle removes the holders whose leases are over, grants the waiters that have become
// grantable, and gives up an empty queue. Every change of a queue ends with it.
func (q *queue) settle(now time.Time) {
	if q.holders.n > 0 && !now.Before(q.soonest) {
		q.expire(now)
	}
	if q.waiters.n > 0 {
		q.grantWaiters(now)
	}
	if q.holders.n+q.waiters.n == 0 {
		q.disarm()
		delete(q.s.queues, q.name)
		return
	}
	q.arm()
}

// expire removes the holders whose lease is over.
func (q *queue) expire(now time.Time) {
	q.soonest = time.Time{}
	for t := q.holders.first; t != nil; {
		next := t.next
		switch {
		case !now.Before(t.until):
			q.remove(t)
		case q.soonest.IsZero() || t.until.Before(q.soonest):
			q.soonest = t.until
		}
		t = next
	}
}

// grantWaiters grants the waiters that are grantable, in order.
func (q *queue) grantWaiters(now time.Time) {
	if q.holders.n > 0 && !q.holders.first.req.Shared {
		return
	}
	blocked, most := 0, 0 // waiters that are not grantable, and their greatest limit
	for t := q.waiters.first; t != nil; {
		next := t.next
		ahead := q.holdersAhead(t) + blocked
		switch {
		case !t.req.Shared:
			if ahead == 0 {
				q.grant(t, now)
			}
			return // an exclusive ticket blocks everything after it
		case t.req.Limit == 0 || ahead < t.req.Limit:
			q.grant(t, now)
		case ahead >= q.most:
			return
		default:
			blocked++
			most = max(most, t.req.Limit)
		}
		t = next
	}
	q.most = most // readers without a limit wait no longer
}

// grant makes a waiter a holder.
func (q *queue) grant(t *ticket, now time.Time) {
	q.removeWaiter(t)
	q.hold(t, now)
	close(t.done)
}

// holdersAhead counts the holders ahead of a waiter. With different limits a later
// ticket may be held while an earlier one waits.
func (q *queue) holdersAhead(t *ticket) int {
	if q.newest < t.token {
		return q.holders.n
	}
	n := 0
	for h := q.holders.first; h != nil; h = h.next {
		if h.token < t.token {
			n++
		}
	}
	return n
}

// arm sets the timer for the end of the first lease, if there are waiters.
func (q *queue) arm() {
	if q.waiters.n == 0 || q.holders.n == 0 {
		q.disarm()
		return
	}
	wait := time.Until(q.soonest)
	if q.timer == nil {
		q.timer = time.AfterFunc(wait, q.wake)
	} else {
		q.timer.Reset(wait)
	}
}

func (q *queue) disarm() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}

// wake is called by the timer.
func (q *queue) wake() {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	if q.s.queues[q.name] == q {
		q.settle(time.Now())
	}
}

// all yields the holders, then the waiters.
func (q *queue) all() iter.Seq[*ticket] {
	return func(yield func(*ticket) bool) {
		for _, l := range []*list{&q.holders, &q.waiters} {
			for t := l.first; t != nil; t = t.next {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// show returns the queue as Inspect does.
func (q *queue) show(now time.Time) []driver.Ticket {
	var tickets []driver.Ticket
	for t := range q.all() {
		v := t.req.Ticket(t.token)
		v.Held, v.Since = t.held, t.since
		if t.held {
			v.Remaining = t.until.Sub(now)
		}
		tickets = append(tickets, v)
	}
	slices.SortFunc(tickets, func(a, b driver.Ticket) int { return cmp.Compare(a.Token, b.Token) })
	return tickets
}

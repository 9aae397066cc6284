package mysql

import "time"

// The poll interval. A queue that moved a moment ago is likely to move again soon, so the
// next waiter polls after an eighth of the time since the queue moved: its grant is late by
// at most that. The further back a waiter is, the less often it polls, so that the cost of a
// grant to all waiters together grows with the logarithm of their number.
const (
	pollShare = 8
	pollLeast = 500 * time.Microsecond
	pollMost  = 50 * time.Millisecond  // of the next waiters
	pollFar   = 75 * time.Millisecond  // of the others: they may become the next all at once
	pollStuck = 500 * time.Millisecond // of all, while a transaction guards a lease that is over
	pollEarly = 4                      // in this last part of its interval a queue is polled with others

	// pollGrowth is by how much the interval of a waiter far back may grow. If a queue stood still for once, its waiters
	// would all sleep for as long as if it always moved so slowly, and be late one after the other.
	pollGrowth = 2
)

// setInterval records what was read of a queue, and sets its poll interval. With the
// poller's mu held.
func (q *watched) setInterval(r *poll, now time.Time) {
	head := uint64(len(r.rows))
	for _, t := range r.rows {
		head = head*1099511628211 + t.token
	}
	if q.head != head {
		q.head, q.movedAt = head, now
	}
	q.speed.note(r.rows, now)
	times, ahead := r.distance()
	longest := min(pollGrowth*q.interval, pollFar)
	q.interval = min(time.Duration(times)*max(now.Sub(q.movedAt)/pollShare, pollLeast), pollMost)
	if ahead > 0 {
		q.interval = max(q.interval, min(q.speed.interval(ahead), longest)) // the waiters ahead move the queue
		return
	}
	for _, t := range r.rows {
		if t.left > 0 {
			q.interval = min(q.interval, max(t.left, pollLeast)) // then it has to be reaped, if it is not renewed
		}
	}
	if !anyExpired(r.rows) {
		q.stuckAt = time.Time{}
		return
	}
	if q.stuckAt.IsZero() { // it could not be reaped: it is guarded, or somebody is reaping it
		q.stuckAt = now
	}
	q.interval = min(max(now.Sub(q.stuckAt)/pollShare, pollMost), pollStuck)
}

// next returns when to poll a queue again. Queues that have come to rest are polled
// together, however far apart their waiters came. With mu held.
func (p *poller) next(q *watched, now time.Time) time.Time {
	if q.interval != pollMost {
		return now.Add(q.interval)
	}
	if p.together.Sub(now) < pollMost/pollEarly { // it was polled with others right now
		p.together = now.Add(pollMost)
	}
	return p.together
}

// distance returns a factor of the interval, because the first waiter need not see every
// release if others are between it and the holder. It also returns how far, in tokens, the
// waiter is from the last ticket that was read; 0: it was read.
func (q *poll) distance() (times int, ahead uint64) {
	if len(q.first) == 0 || len(q.rows) == 0 {
		return 1, 0
	}
	w := q.first[0]
	if w.shared && w.permits == 0 {
		return 1, 0 // all readers are granted at once
	}
	if last := q.rows[len(q.rows)-1].token; w.token > last {
		return headLeast + 1, w.token - last
	}
	if w.shared {
		return 1, 0
	}
	for i, t := range q.rows[:min(headLeast, len(q.rows))] {
		if t.token >= w.token {
			return max(i, 1), 0
		}
	}
	return headLeast, 0
}

// A speed is how fast a queue moves, in tokens. The more other queues are in use, the
// further apart its tokens are.
type speed struct {
	last uint64    // the token of the last ticket that was read
	at   time.Time // when it was first read
	each float64   // nanoseconds for a token
}

func (s *speed) note(rows []row, now time.Time) {
	if len(rows) == 0 {
		return
	}
	last := rows[len(rows)-1].token
	if s.last > 0 && last > s.last {
		s.each = float64(now.Sub(s.at)) / float64(last-s.last)
	}
	if last > s.last {
		s.last, s.at = last, now
	}
}

// interval returns two thirds of the time in which the queue, at its speed, moves by so many
// tokens.
func (s *speed) interval(tokens uint64) time.Duration {
	return time.Duration(min(float64(tokens)*s.each*2/3, float64(pollFar)))
}

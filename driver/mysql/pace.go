package mysql

import "time"

// When to look at a line again. A line that moved a moment ago is likely to move
// again soon, so whoever is next looks after an eighth of the time since something
// changed: a hand-off is noticed at most that much later than at once. Who is not
// next looks less often, the less the further behind: what a grant costs all
// waiters together grows with the logarithm of their number.
const (
	pollShare = 8
	pollLeast = 500 * time.Microsecond
	pollMost  = 50 * time.Millisecond // so that who waited long is granted in time, too
	pollFar   = 75 * time.Millisecond // of those who are not among the first: they may be next all at once
	pollEarly = 4                     // the part of the rest before its end at which a line is due with others

	// ranks is how many tickets of a line are read at least, to see how far ahead the
	// holder is.
	ranks = 3
)

// note takes down what was read of a line, and returns when to look again. With the
// poller's mu held.
func (l *watch) note(r *reading, now time.Time) (due time.Time) {
	head := uint64(len(r.rows))
	for _, t := range r.rows {
		head = head*1099511628211 + t.token
	}
	if l.head != head {
		l.head, l.moved = head, now
	}
	l.pace.note(r.rows, now)
	times, ahead := r.patience()
	rest := min(time.Duration(times)*max(now.Sub(l.moved)/pollShare, pollLeast), pollMost)
	if ahead > 0 { // those in between see to it that the line moves
		rest = max(rest, min(l.pace.rest(ahead), pollFar))
	} else {
		for _, t := range r.rows {
			if t.left > 0 {
				rest = min(rest, max(t.left, pollLeast)) // then it is dead, if it is not renewed
			}
		}
	}
	l.rest = rest
	return now.Add(rest)
}

// patience is by how much longer than usual the poller may rest: whoever has others
// between itself and the holder need not see every hand-off. ahead is by how much
// the place of our first ticket is behind the last that was read; 0: it is near.
func (l *reading) patience() (times int, ahead uint64) {
	if len(l.seats) == 0 || len(l.rows) == 0 {
		return 1, 0
	}
	s := l.seats[0].seat
	if s.shared && s.permits == 0 {
		return 1, 0 // all readers are granted at once
	}
	if last := l.rows[len(l.rows)-1].token; s.token > last {
		return ranks + 1, seqOf(s.token) - seqOf(last)
	}
	if s.shared {
		return 1, 0
	}
	for i, r := range l.rows[:min(ranks, len(l.rows))] {
		if r.token >= s.token {
			return max(i, 1), 0
		}
	}
	return ranks, 0
}

// A pace is how fast the tickets that are read of a line change, measured in their places.
// These are apart, by as much as other lines are in use.
type pace struct {
	last  uint64    // the place of the last of them
	at    time.Time // when it was first seen
	apart float64   // the largest distance of tickets
	each  float64   // nanoseconds for a place, at least
}

// paceGrowth is why a line that stood still for once is not taken for a slow one.
const paceGrowth = 1.25

// note takes down what was read. The pace is first taken to be the fastest that there is.
func (p *pace) note(rows []row, now time.Time) {
	if len(rows) < 2 {
		return
	}
	first, last := seqOf(rows[0].token), seqOf(rows[len(rows)-1].token)
	p.apart = max(p.apart, float64(last-first)/float64(len(rows)-1))
	fastest := float64(pollLeast) / p.apart
	switch {
	case p.last == 0:
		p.each = fastest
	case last > p.last:
		p.each = max(fastest, min(float64(now.Sub(p.at))/float64(last-p.last), paceGrowth*p.each))
	default:
		return
	}
	p.last, p.at = last, now
}

// rest is two thirds of the time that the line takes, at its pace, until the ticket is
// among those that are read. So a waiter far behind looks seldom, and the oftener
// the nearer it comes.
func (p *pace) rest(ahead uint64) time.Duration {
	return time.Duration(min(float64(ahead)*p.each*2/3, float64(pollFar)))
}

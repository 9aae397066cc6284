package mysql

import (
	"context"
	"slices"
	"time"
)

// A reading is the head of a line as the poller reads it.
type reading struct {
	name  string
	most  int
	rows  []row
	seats []*waiter // by number
}

// look reads the heads of all lines, buries, and claims. It returns when to look
// again.
func (p *poller) look(ctx context.Context) (time.Duration, error) {
	lines := p.readings()
	for some := range slices.Chunk(lines, pollLines) {
		if err := p.d.heads(ctx, some); err != nil {
			return 0, err
		}
	}
	var due []*waiter
	next := pollMost
	for i := range lines {
		l := &lines[i]
		if anyDead(l.rows) {
			if n, err := p.d.bury(ctx, l.name); err != nil {
				return 0, err
			} else if n > 0 {
				next = 0 // the line has moved
				continue
			}
		}
		ready, unsure := l.judge()
		due = append(due, ready...)
		next = min(next, p.noted(l, unsure))
	}
	if len(due) > 0 {
		return 0, p.claim(ctx, due)
	}
	return next, nil
}

// readings says what to read of each line.
func (p *poller) readings() []reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]reading, 0, len(p.lines))
	for _, l := range p.lines {
		most := max(l.most, ranks)
		for _, w := range l.order {
			most = max(most, w.enough())
			if !w.shared {
				break // nobody behind it is granted
			}
		}
		lines = append(lines, reading{name: l.name, most: most, seats: slices.Clone(l.front())})
	}
	return lines
}

// front is the part of the waiters that may be granted: readers, and the first
// writer.
func (l *watch) front() []*waiter {
	for i, w := range l.order {
		if !w.shared {
			return l.order[:i+1]
		}
	}
	return l.order
}

// judge returns the waiters who are granted, and whether more has to be read to
// tell.
func (l *reading) judge() (ready []*waiter, more bool) {
	for _, w := range l.seats {
		switch w.seat.judge(l.rows, l.most) {
		case granted:
			ready = append(ready, w)
		case unsure:
			more = true
		}
	}
	return ready, more
}

// ranks is how many tickets of a line are read at least, to see how far ahead the
// holder is.
const ranks = 3

// patience is by how much longer than usual the poller may rest: whoever has others
// between itself and the holder need not see every hand-off.
func (l *reading) patience() int {
	for i, r := range l.rows[:min(ranks, len(l.rows))] {
		if l.seats[0].shared || r.token >= l.seats[0].token {
			return max(i, 1)
		}
	}
	return ranks + 1
}

// noted takes down what was read of a line and returns when to read it again.
func (p *poller) noted(l *reading, unsure bool) time.Duration {
	now := time.Now()
	head := uint64(len(l.rows))
	for _, r := range l.rows {
		head = head*1099511628211 + r.token
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.lines[l.name]
	if w == nil {
		return pollMost
	}
	if w.head != head {
		w.head, w.moved = head, now
	}
	if unsure && l.most < readersMost {
		w.most = 8 * l.most
		return 0
	}
	w.most = 0
	next := min(time.Duration(l.patience())*max(now.Sub(w.moved)/pollShare, pollLeast), pollMost)
	for _, r := range l.rows {
		if r.left > 0 {
			next = min(next, max(r.left, pollLeast)) // then it is dead, if it is not renewed
		}
	}
	return next
}

// claim grants waiters, those of one TTL in one statement.
func (p *poller) claim(ctx context.Context, due []*waiter) error {
	byTTL := make(map[time.Duration][]*waiter)
	for _, w := range due {
		byTTL[w.ttl] = append(byTTL[w.ttl], w)
	}
	for ttl, ws := range byTTL {
		now := time.Now()
		tokens := make(map[uint64]bool, len(ws))
		for _, w := range ws {
			tokens[w.token] = true
			if w.claimed.IsZero() {
				w.claimed = now // an earlier claim may have been heard, and not answered
			}
		}
		held, err := p.d.claim(ctx, sorted(tokens), ttl)
		if err != nil {
			return err
		}
		for _, w := range ws {
			if held[w.token] {
				p.end(w, outcome{asked: w.claimed})
			}
		}
	}
	return nil
}

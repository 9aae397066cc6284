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

// look reads the heads of the lines that are due, buries, and claims.
func (p *poller) look(ctx context.Context) error {
	lines := p.readings()
	for some := range slices.Chunk(lines, pollLines) {
		if err := p.d.heads(ctx, some); err != nil {
			return err
		}
	}
	var due []*waiter
	for i := range lines {
		l := &lines[i]
		if anyDead(l.rows) {
			if n, err := p.d.bury(ctx, l.name); err != nil {
				return err
			} else if n > 0 {
				continue // the line has moved, and is still due
			}
		}
		ready, unsure := l.judge()
		for _, w := range ready {
			w.crowd = crowded(w.seat, l.rows)
		}
		due = append(due, ready...)
		p.noted(l, len(ready) > 0, unsure)
	}
	if len(due) == 0 {
		return nil
	}
	return p.claim(ctx, due)
}

// readings says what to read of each line that is due, or nearly: so lines that are at
// rest come to be read together.
func (p *poller) readings() []reading {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []reading
	now := time.Now()
	for _, l := range p.lines {
		if l.due.Sub(now) > l.rest/pollEarly {
			continue
		}
		most := max(l.most, ranks)
		for _, w := range l.order {
			most = max(most, w.enough())
			if !w.shared {
				break // nobody behind it is granted
			}
		}
		l.due = time.Time{} // whatever happens from now on is news
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

// noted takes down what was read of a line and when to read it again: at once, where
// somebody is granted, for others may be next.
func (p *poller) noted(l *reading, granted, unsure bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.lines[l.name]
	switch {
	case w == nil:
	case unsure && l.most < readersMost:
		w.most = 8 * l.most // and it is still due
	default:
		w.most = 0
		if due := w.note(l, time.Now()); !granted && w.due.IsZero() {
			w.due = due
		}
	}
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

package consul

import (
	"context"
	"time"
)

// A timer keeps the sessions alive of tickets that are being queued or wait (the
// core renews those that are held), begins to watch for losses, and destroys
// sessions that nobody needs.

const (
	// idleFor is how long a session without tickets is kept for the next one.
	idleFor = 10 * time.Second
	// watchAfter is how old a session is before losses of its tickets are watched
	// for, so that short uses do without it.
	watchAfter = 200 * time.Millisecond
	// renewBound is how long one renewal may take.
	renewBound = 5 * time.Second
)

// tendAt has the sessions tended at a time, or earlier. With mu held.
func (d *Driver) tendAt(at time.Time) {
	if d.closed || !d.nextTend.IsZero() && !at.Before(d.nextTend) {
		return
	}
	d.nextTend = at
	if d.tender == nil {
		d.tender = time.AfterFunc(time.Until(at), d.tendAll)
		return
	}
	d.tender.Reset(time.Until(at))
}

// tendAll does what is due for all sessions, and plans the next time.
func (d *Driver) tendAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextTend = time.Time{}
	if d.closed {
		return
	}
	now := time.Now()
	for s := range d.sessions {
		if next := d.tend(s, now); !next.IsZero() {
			d.tendAt(next)
		}
	}
}

// tend does what is due for one session, and returns when something else will
// be; zero: when somebody asks. With mu held.
func (d *Driver) tend(s *session, now time.Time) time.Time {
	if len(s.tickets) == 0 {
		if end := s.idle.Add(idleFor); now.Before(end) {
			return end
		}
		d.forget(s)
		d.destroyLocked(s)
		return time.Time{}
	}
	var next time.Time
	if !s.watched {
		if begin := s.created.Add(watchAfter); now.Before(begin) {
			next = begin
		} else {
			s.watched = true
			d.work.Go(func() { d.watchLosses(s) })
		}
	}
	if s.waiting > 0 && !s.renewing {
		due := s.asked.Add(s.ttl / fresh)
		if s.next.After(due) {
			due = s.next
		}
		if now.Before(due) {
			return earliest(next, due)
		}
		s.renewing = true
		d.work.Go(func() { d.renewWaiting(s) })
	}
	return next
}

// renewWaiting renews a session once, and plans the next time.
func (d *Driver) renewWaiting(s *session) {
	ctx, cancel := context.WithTimeout(d.ctx, renewBound)
	defer cancel()
	_, err := d.renewSession(ctx, s)
	d.mu.Lock()
	defer d.mu.Unlock()
	s.renewing = false
	if err != nil {
		s.retry = min(backoff(s.retry), s.ttl/10)
		s.next = time.Now().Add(s.retry)
	}
	d.tendAt(time.Now().Add(time.Millisecond))
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

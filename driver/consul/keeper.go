package consul

import (
	"context"
	"time"
)

// The keeper is a timer, not a goroutine. It renews the sessions of tickets that
// join or wait (the core renews those that are held), opens letter boxes, and
// destroys sessions that nobody needs.

const (
	// idleFor is how long a session without tickets is kept for the next one.
	idleFor = 10 * time.Second
	// postAfter is how old a session is before its letter box is opened, so
	// that short uses do without it.
	postAfter = 200 * time.Millisecond
	// renewBound is how long one renewal may take.
	renewBound = 5 * time.Second
)

// planKeeper makes the keeper look at a time, or earlier. With mu held.
func (d *Driver) planKeeper(at time.Time) {
	if d.closed || !d.keepAt.IsZero() && !at.Before(d.keepAt) {
		return
	}
	d.keepAt = at
	if d.keeper == nil {
		d.keeper = time.AfterFunc(time.Until(at), d.keep)
		return
	}
	d.keeper.Reset(time.Until(at))
}

// keep looks at all sessions once and plans its next look.
func (d *Driver) keep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.keepAt = time.Time{}
	if d.closed {
		return
	}
	now := time.Now()
	for s := range d.sessions {
		if next := d.look(s, now); !next.IsZero() {
			d.planKeeper(next)
		}
	}
}

// look does what is due for one session, and returns when something else will
// be; zero: when somebody asks. With mu held.
func (d *Driver) look(s *session, now time.Time) time.Time {
	if len(s.tickets) == 0 {
		if end := s.idle.Add(idleFor); now.Before(end) {
			return end
		}
		d.forget(s)
		d.destroyLocked(s)
		return time.Time{}
	}
	var next time.Time
	if !s.post {
		if open := s.created.Add(postAfter); now.Before(open) {
			next = open
		} else {
			s.post = true
			d.work.Go(func() { d.readPost(s) })
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
	d.planKeeper(time.Now().Add(time.Millisecond))
}

func earliest(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

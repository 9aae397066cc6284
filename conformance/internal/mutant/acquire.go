package mutant

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	var t *ticket
	asked := time.Now()
	err := d.ask(ctx, func() (err error) {
		t, err = d.take(r)
		return err
	})
	if errors.Is(err, errRefused) {
		err = d.leave(ctx, r)
	}
	if err != nil {
		return driver.Grant{}, err
	}
	if t == nil { // only with AssumesSuccess
		return driver.Grant{Token: 1, Asked: asked}, nil
	}
	if d.s.has(JoinedTwice) && r.Joined != nil {
		r.Joined()
	}
	select {
	case <-t.done:
	default:
		if r.Joined != nil && !d.s.has(NeverJoined) {
			r.Joined()
		}
		if err := d.wait(ctx, t); err != nil {
			return driver.Grant{}, err
		}
	}
	return d.ack(ctx, t)
}

// take joins the line.
func (d *Driver) take(r driver.Request) (*ticket, error) {
	s := d.s
	ln, err := s.line(r.Name)
	if err != nil {
		return nil, err
	}
	for _, t := range ln.tickets {
		if t.r.ID == r.ID && !s.has(QueuesTwice) || s.has(OwnerIsTicket) && t.r.Owner == r.Owner {
			return t, nil
		}
	}
	now := time.Now()
	if !r.Shared {
		s.xs++
	}
	t := &ticket{d: d, r: r, joined: now, since: now, touched: now, done: make(chan struct{})}
	t.token = s.number(ln, t)
	ln.used = true
	ln.tickets = append(ln.tickets, t)
	if ln.grantable(t) && (!ln.free.After(now) || !r.Wait) {
		ln.hold(t, now)
	} else if !r.Wait {
		return nil, s.refuse(ln)
	}
	ln.settle()
	return t, nil
}

// errRefused says that a ticket has yet to leave the queue, for RefusedQueued.
var errRefused = errors.New("mutant: refused, and queued")

// leave takes a ticket out of the queue that was refused a moment ago.
func (d *Driver) leave(ctx context.Context, r driver.Request) error {
	sleep(ctx, time.Millisecond)
	return d.ask(ctx, func() error {
		ln, err := d.s.line(r.Name)
		if err != nil {
			return err
		}
		if t := ln.find(r.Hold(0)); t != nil {
			ln.remove(t)
		}
		ln.settle()
		return driver.ErrNotAcquired
	})
}

func (s *Store) refuse(ln *line) error {
	if s.has(RefusedQueued) {
		return errRefused
	}
	if !s.has(RefusedLeavesOne) {
		ln.tickets = ln.tickets[:len(ln.tickets)-1]
	}
	if s.has(TokensBackOnTry) {
		s.last -= 2
	}
	ln.settle()
	return driver.ErrNotAcquired
}

// wait shows that the waiter lives, until it is granted or gone.
func (d *Driver) wait(ctx context.Context, t *ticket) error {
	var last error
	if d.s.has(FewConnections) {
		select {
		case d.conns <- struct{}{}:
			defer func() { <-d.conns }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		beat := time.NewTimer(d.beat(pause))
		select {
		case <-beat.C:
		case <-d.heard(t):
		case <-ctx.Done():
			beat.Stop()
			return d.endOfWait(ctx, last)
		case <-d.ended():
			beat.Stop()
			return driver.ErrClosed
		}
		beat.Stop()
		state := waiting
		beatCtx, cancel := context.WithTimeout(ctx, Liveness/4)
		err := d.ask(beatCtx, func() error {
			state = d.touch(t)
			return nil
		})
		cancel()
		switch {
		case err != nil && d.s.has(FailsInOutage):
			return err
		case err != nil:
			if last = err; !sleep(ctx, Liveness/10) {
				return d.endOfWait(ctx, last)
			}
		case state == gone:
			return driver.ErrLost
		case state == granted:
			return nil
		}
	}
}

// beat is the time to the next heartbeat.
func (d *Driver) beat(pause time.Duration) time.Duration {
	switch d.s.bug {
	case PollsSlowly:
		return 250 * time.Millisecond
	case PollsLater:
		return pause
	}
	return Liveness / 4
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// heard is the push that a ticket is no waiter any more, if it arrives.
func (d *Driver) heard(t *ticket) <-chan struct{} {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	if d.cut || d.drop || d.s.paused || !d.s.up || d.s.has(PollsSlowly) || d.s.has(PollsLater) {
		return nil
	}
	return t.done
}

// ended is closed with the driver.
func (d *Driver) ended() <-chan struct{} {
	if d.s.has(CloseHangs) {
		return nil
	}
	return d.closing
}

func (d *Driver) endOfWait(ctx context.Context, last error) error {
	d.s.lateReturn()
	if d.s.has(SilentOutage) {
		last = nil
	}
	if d.s.has(LostIfUnknown) {
		return driver.ErrLost
	}
	return errors.Join(context.Cause(ctx), last)
}

type state int

const (
	waiting state = iota
	granted
	gone
)

// touch is a heartbeat; it tells how the ticket stands.
func (d *Driver) touch(t *ticket) state {
	ln, err := d.s.line(t.r.Name)
	switch {
	case err != nil || !slices.Contains(ln.tickets, t):
		if err == nil {
			ln.settle()
		}
		if d.s.has(ReleaseSilent) {
			return waiting
		}
		return gone
	case t.held:
		return granted
	}
	t.touched = time.Now()
	return waiting
}

// ack starts the lease of a ticket whose client knows that it holds.
func (d *Driver) ack(ctx context.Context, t *ticket) (driver.Grant, error) {
	var g driver.Grant
	asked := time.Now()
	err := d.ask(ctx, func() error {
		ln, err := d.s.line(t.r.Name)
		if err != nil || !slices.Contains(ln.tickets, t) {
			return driver.ErrLost
		}
		if !t.acked && !d.s.has(LeaseFromJoining) {
			t.until = time.Now().Add(d.s.lease(t.r.TTL))
			if d.s.has(HoldIgnored) && t.r.MinHold > 0 {
				t.until = time.Now().Add(time.Second)
			}
		}
		t.acked = true
		g = driver.Grant{Token: t.token, Asked: asked}
		switch {
		case d.s.has(AskedLate):
			g.Asked = asked.Add(t.r.TTL / 2)
		case d.s.has(AskedLongAgo):
			g.Asked = asked.Add(-2 * time.Second)
		}
		ln.settle()
		return nil
	})
	return g, err
}

// lease is how long a lease of ttl is.
func (s *Store) lease(ttl time.Duration) time.Duration {
	switch {
	case s.has(ExpiresEarly):
		return ttl * 6 / 10
	case s.has(LongOverflows) && ttl > 24*time.Hour:
		return 0
	}
	return ttl
}

package mutant

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := d.acquire(ctx, r)
	if d.s.has(JoinedOnTry) && errors.Is(err, driver.ErrNotAcquired) && r.Joined != nil {
		r.Joined()
	}
	if d.s.has(MarksNoTicket) {
		err = driver.NoTicket(err)
	}
	return g, err
}

func (d *Driver) acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
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
		d.join(ctx, t, r.Joined)
		if err := d.wait(ctx, t); err != nil {
			return driver.Grant{}, err
		}
	}
	return d.ack(ctx, t)
}

// join calls Joined, which may take long, and sends heartbeats meanwhile.
func (d *Driver) join(ctx context.Context, t *ticket, joined func()) {
	if joined == nil || d.s.has(NeverJoined) {
		return
	}
	if d.s.has(JoinedBlocks) {
		d.conns <- struct{}{}
		defer func() { <-d.conns }()
	}
	ctx, cancel := context.WithCancel(ctx)
	var heartbeats sync.WaitGroup
	defer heartbeats.Wait()
	defer cancel()
	heartbeats.Go(func() {
		for retry.Sleep(ctx, Liveness/4, nil) && !d.s.has(JoinedIsSilent) && !d.s.has(JoinedBlocks) {
			_ = d.ask(ctx, func() error {
				d.touch(t)
				return nil
			})
		}
	})
	joined()
}

// take enqueues a ticket.
func (d *Driver) take(r driver.Request) (*ticket, error) {
	s := d.s
	q, err := s.queue(r.Name)
	if err != nil {
		return nil, err
	}
	r.ID = s.id(r.ID)
	if s.has(CutsLimits) {
		r.Limit = int(int32(r.Limit)) //nolint:gosec // that is the bug
	}
	if _, asked := q.asked[d]; !asked && s.has(ObservedAlone) {
		if q.asked == nil {
			q.asked = make(map[*Driver]time.Time)
		}
		q.asked[d] = time.Now()
	}
	for _, t := range q.tickets {
		if t.r.ID == r.ID && s.has(TryRefusesItself) && !r.Wait {
			return nil, driver.ErrNotAcquired
		}
		if t.r.ID == r.ID && !s.has(QueuesTwice) && !(s.has(SharedTwice) && r.Shared) || s.has(OwnerIsTicket) && t.r.Owner == r.Owner {
			return t, nil
		}
	}
	now := time.Now()
	if s.has(TryConflicts) && !r.Wait && slices.ContainsFunc(q.tickets, func(t *ticket) bool { return !t.r.Wait && t.d != d && t.queued.Equal(now) }) {
		return nil, driver.ErrNotAcquired
	}
	if !r.Shared {
		s.exclusives++
	}
	t := &ticket{d: d, r: r, queued: now, since: now, touched: now, done: make(chan struct{})}
	t.token = s.number(q, t)
	q.used = true
	q.tickets = append(q.tickets, t)
	if q.grantable(t) && (!q.free.After(now) || !r.Wait) {
		q.hold(t, now)
	} else if !r.Wait {
		return nil, s.refuse(q)
	}
	q.settle()
	return t, nil
}

// errRefused means that a ticket has yet to leave the queue, for RefusedQueued.
var errRefused = errors.New("mutant: refused, and queued")

// leave removes the ticket of a request that was refused.
func (d *Driver) leave(ctx context.Context, r driver.Request) error {
	retry.Sleep(ctx, time.Millisecond, nil)
	return d.ask(ctx, func() error {
		q, err := d.s.queue(r.Name)
		if err != nil {
			return err
		}
		if t := q.find(r.Hold(0)); t != nil {
			q.remove(t)
		}
		q.settle()
		return driver.ErrNotAcquired
	})
}

func (s *Store) refuse(q *queue) error {
	if s.has(RefusedQueued) {
		return errRefused
	}
	if !s.has(RefusedLeavesOne) {
		q.tickets = q.tickets[:len(q.tickets)-1]
	}
	if s.has(TokensBackOnTry) {
		s.last -= 2
	}
	q.settle()
	return driver.ErrNotAcquired
}

// wait sends heartbeats until the ticket is granted or gone.
func (d *Driver) wait(ctx context.Context, t *ticket) error {
	var last error
	if d.s.has(FewConnections) {
		free, err := d.connection(ctx)
		if err != nil {
			return err
		}
		defer free()
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		heartbeat := time.NewTimer(d.interval(pause))
		select {
		case <-heartbeat.C:
		case <-d.notified(t):
		case <-ctx.Done():
			heartbeat.Stop()
			return d.endOfWait(ctx, last)
		case <-d.ended():
			heartbeat.Stop()
			if d.s.has(WaiterStays) {
				go time.Sleep(time.Hour)
			}
			return driver.ErrClosed
		}
		heartbeat.Stop()
		state := waiting
		heartbeatCtx, cancel := context.WithTimeout(ctx, Liveness/4)
		err := d.ask(heartbeatCtx, func() error {
			state = d.touch(t)
			return nil
		})
		cancel()
		switch {
		case err != nil && d.s.has(FailsInOutage):
			return err
		case err != nil:
			if last = err; !retry.Sleep(ctx, Liveness/10, nil) {
				return d.endOfWait(ctx, last)
			}
		case state == gone:
			return driver.ErrLost
		case state == granted:
			return nil
		}
	}
}

// interval is the time to the next heartbeat.
func (d *Driver) interval(pause time.Duration) time.Duration {
	switch d.s.bug {
	case PollsSlowly, ReadersPoll:
		return 250 * time.Millisecond
	case PollsLater:
		return pause
	case HeardOnce:
		return 1200 * time.Millisecond
	}
	return Liveness / 4
}

// notified returns a channel that is closed when the ticket no longer waits, or nil
// if the notification cannot arrive.
func (d *Driver) notified(t *ticket) <-chan struct{} {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	polls := d.s.has(PollsSlowly) || d.s.has(ReadersPoll) && t.r.Shared || d.s.has(PollsLater) || d.s.has(HeardOnce) && d.heard[t.r.Name]
	if d.cut || d.drop || d.s.paused || !d.s.up || polls {
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
	d.s.delayReturn()
	if d.s.has(SilentOutage) || d.s.has(SilentWaits) {
		last = nil
	}
	switch d.s.bug {
	case LostIfUnknown:
		return driver.ErrLost
	case NoCause:
		return errNoAnswer
	case WaitUnavailable:
		return driver.Unavailable(context.Cause(ctx))
	}
	return errors.Join(context.Cause(ctx), last)
}

type state int

const (
	waiting state = iota
	granted
	gone
)

// touch is a heartbeat. It returns the state of the ticket.
func (d *Driver) touch(t *ticket) state {
	q, err := d.s.queue(t.r.Name)
	switch {
	case err != nil || !slices.Contains(q.tickets, t):
		if err == nil {
			q.settle()
		}
		if d.s.has(ReleaseSilent) {
			return waiting
		}
		return gone
	case t.held:
		d.heard[t.r.Name] = true
		return granted
	}
	t.touched = time.Now()
	if d.s.has(WaiterSince) {
		t.since = t.touched
	}
	return waiting
}

// ack starts the lease of a ticket whose client has noticed its grant.
func (d *Driver) ack(ctx context.Context, t *ticket) (driver.Grant, error) {
	var g driver.Grant
	asked := time.Now()
	err := d.ask(ctx, func() error {
		q, err := d.s.queue(t.r.Name)
		if err != nil || !slices.Contains(q.tickets, t) {
			return driver.ErrLost
		}
		if !t.acked || d.s.has(AskedAtTheRepeat) {
			t.asked = asked
		}
		if !t.acked && !d.s.has(LeaseFromQueueing) {
			t.until = time.Now().Add(d.s.lease(d.s.leaseOf(t)))
			if (d.s.has(HoldIgnored) || d.s.has(HoldOfReaders) && t.r.Shared) && t.r.MinHold > 0 {
				t.until = time.Now().Add(time.Second)
			}
			if d.s.has(HoldFromQueueing) && t.r.MinHold > 0 {
				t.until = t.queued.Add(t.r.MinHold)
			}
		}
		if d.s.has(ClaimUnsaid) && t.since.After(t.queued) {
			t.until = time.Now().Add(min(t.r.TTL, Liveness))
		}
		t.acked = true
		g = driver.Grant{Token: t.token, Asked: t.asked}
		switch {
		case d.s.has(ADayAtMost):
			g.TTL = d.s.leaseOf(t)
		case d.s.has(AskedLate):
			g.Asked = t.asked.Add(t.r.TTL / 2)
		case d.s.has(AskedLongAgo):
			g.Asked = t.asked.Add(-2 * time.Second)
		}
		q.settle()
		return nil
	})
	return g, err
}

// leaseOf is the TTL of a ticket, for the bugs that shorten those of some.
func (s *Store) leaseOf(t *ticket) time.Duration {
	switch {
	case s.has(ReadersEarly) && t.r.Shared && t.r.Limit == 0, s.has(PermitsEarly) && t.r.Limit > 0, s.has(TriesEarly) && !t.r.Wait,
		s.has(WaitedEarly) && t.r.Shared && t.since.After(t.queued):
		return t.r.TTL * 6 / 10
	case s.has(WaitedSeconds) && t.since.After(t.queued):
		return max(t.r.TTL.Truncate(time.Second), time.Second)
	case s.has(ADayAtMost):
		return min(t.r.TTL, 24*time.Hour)
	}
	return t.r.TTL
}

// lease is how long a lease of ttl is.
func (s *Store) lease(ttl time.Duration) time.Duration {
	switch {
	case s.has(ExpiresEarly):
		return ttl * 6 / 10
	case s.has(LongOverflows) && ttl > 24*time.Hour:
		return 0
	case s.has(LongWraps):
		return ttl % (1 << 32 * time.Millisecond)
	case s.has(WholeSeconds):
		return max(ttl.Truncate(time.Second), time.Second)
	case s.has(LongShortened):
		return min(ttl, 24*time.Hour)
	}
	return ttl
}

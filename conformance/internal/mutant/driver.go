package mutant

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

var (
	errDown   = errors.New("mutant: the server is down")
	errReset  = errors.New("mutant: the connection was reset, and an answer with it")
	errNoWay  = errors.New("mutant: no answer")
	errBroken = errors.New("mutant: broken")
	errTwice  = errors.New("mutant: closed twice")
)

// Driver is a client. It is its own Link.
type Driver struct {
	s       *Store
	closing chan struct{}
	tell    func(driver.Hold, error)

	// guarded by s.mu
	closed bool
	cut    bool
	drop   bool
	wasCut bool
	tokens uint64
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Lister       = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.LossNotifier = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
)

// Open returns a client.
func (s *Store) Open() *Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &Driver{s: s, closing: make(chan struct{})}
	s.clis = append(s.clis, d)
	return d
}

// Cut cuts the client off.
func (d *Driver) Cut() { d.link(func() { d.cut, d.wasCut = true, true }) }

// Heal undoes Cut and DropReplies.
func (d *Driver) Heal() { d.link(func() { d.cut, d.drop = false, false }) }

// DropReplies loses answers.
func (d *Driver) DropReplies(on bool) { d.link(func() { d.drop = on }) }

func (d *Driver) link(f func()) {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	f()
	d.s.change()
}

// gate returns once the way to the server is open.
func (d *Driver) gate(ctx context.Context, answer bool) error {
	s := d.s
	for waited := false; ; waited = true {
		s.mu.Lock()
		shut := d.cut || s.paused || answer && d.drop || s.has(NeverReconnects) && d.wasCut
		up, closed, changed := s.up, d.closed && !s.has(WorksClosed), s.changed
		s.mu.Unlock()
		switch {
		case closed:
			return driver.ErrClosed
		case !up:
			return errDown
		case !shut && answer && waited:
			return errReset // what was under way when the way was shut is lost
		case !shut:
			return nil
		}
		select {
		case <-changed:
		case <-d.closing:
			return driver.ErrClosed
		case <-ctx.Done():
			if s.has(IgnoresContext) {
				time.Sleep(30 * time.Second)
			}
			return errors.Join(context.Cause(ctx), errNoWay)
		}
	}
}

// ask sends a request, which f executes with the store locked.
func (d *Driver) ask(ctx context.Context, f func() error) error {
	if err := d.gate(ctx, false); err != nil {
		return d.unknown(err)
	}
	if ctx.Err() != nil {
		return d.unknown(errors.Join(context.Cause(ctx), errNoWay))
	}
	d.s.mu.Lock()
	err := f()
	d.s.mu.Unlock()
	if lost := d.gate(ctx, true); lost != nil {
		return d.unknown(lost)
	}
	return err
}

// askLate is ask for a request that shares nothing with its caller: one that
// is held up on the way is executed though nobody waits for it any more.
func (d *Driver) askLate(ctx context.Context, f func() error) error {
	err := d.ask(ctx, f)
	if err != nil && ctx.Err() != nil && !errors.Is(err, errReset) {
		go d.late(f)
	}
	return err
}

// late executes a request that nobody waits for any more, when it gets
// through: so does a network that was only slow.
func (d *Driver) late(f func() error) {
	if d.gate(context.Background(), false) == nil {
		d.s.mu.Lock()
		defer d.s.mu.Unlock()
		_ = f()
	}
}

func (d *Driver) unknown(err error) error {
	switch {
	case errors.Is(err, driver.ErrClosed):
		return err
	case d.s.has(AssumesSuccess):
		return nil
	case d.s.has(LostIfUnknown):
		return driver.ErrLost
	}
	return err
}

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	var t *ticket
	asked := time.Now()
	err := d.ask(ctx, func() (err error) {
		t, err = d.take(r)
		return err
	})
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

func (s *Store) refuse(ln *line) error {
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
	for {
		beat := time.NewTimer(Liveness / 4)
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
	if d.cut || d.drop || d.s.paused || !d.s.up {
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
	if d.s.has(IgnoresContext) {
		time.Sleep(30 * time.Second)
	}
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

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.askLate(ctx, func() error { return d.renew(h, ttl) })
}

func (d *Driver) renew(h driver.Hold, ttl time.Duration) error {
	s := d.s
	ln, err := s.line(h.Name)
	if err != nil {
		return err
	}
	defer ln.settle()
	t := ln.find(h)
	switch {
	case s.has(BreakNotPushed) && t == nil:
		return nil
	case s.has(RenewAnybody) && t == nil && len(ln.tickets) > 0:
		t = ln.tickets[0]
	case s.has(RenewRevives) && t == nil:
		t = &ticket{d: d, r: driver.Request{Name: h.Name, ID: h.ID, Shared: h.Shared}, token: h.Token, held: true, done: make(chan struct{})}
		ln.tickets = append([]*ticket{t}, ln.tickets...)
	}
	if t == nil || !t.held && !s.has(RenewWaiter) {
		return driver.ErrLost
	}
	until := time.Now().Add(s.lease(ttl))
	switch {
	case s.has(RenewNothing):
		return nil
	case s.has(RenewAddsUp):
		t.until = t.until.Add(ttl)
	case until.After(t.until) || s.has(RenewShortens):
		t.until = until
	}
	return nil
}

// RenewAll implements driver.BatchRenewer.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	err := d.ask(ctx, func() error {
		answers := make([]error, len(rs))
		for i, r := range rs {
			answers[i] = d.renew(r.Hold, r.TTL)
		}
		errs = answers
		return nil
	})
	for i := range errs {
		if err != nil {
			errs[i] = err
		}
	}
	if d.s.has(BatchReversed) {
		slices.Reverse(errs)
	}
	return errs
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	return d.askLate(ctx, func() error { return d.release(h) })
}

func (d *Driver) release(h driver.Hold) error {
	s := d.s
	ln, err := s.line(h.Name)
	if err != nil {
		return err
	}
	t := ln.find(h)
	if s.has(ReleaseAnybody) && t == nil && len(ln.tickets) > 0 {
		t = ln.tickets[0]
	}
	switch {
	case t == nil,
		s.has(ReleaseByToken) && h.Token == 0,
		s.has(ReleaseHeldOnly) && !t.held:
		ln.settle()
		return driver.ErrLost
	case s.has(ReleaseNothing):
		return nil
	}
	ln.remove(t)
	ln.stuck = !t.held && s.has(NoSettleOnCancel)
	ln.settle()
	return nil
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	var broken *ticket
	err := d.ask(ctx, func() error {
		ln, err := d.s.line(name)
		if err != nil {
			return err
		}
		defer ln.settle()
		if d.s.has(BreakNothing) {
			return nil
		}
		i := slices.IndexFunc(ln.tickets, func(t *ticket) bool { return t.token == token })
		if i < 0 && d.s.has(BreakAnything) && len(ln.tickets) > 0 {
			i = 0
		}
		if i < 0 {
			return driver.ErrLost
		}
		broken = ln.tickets[i]
		ln.remove(broken)
		if d.s.has(TokensBackOnBreak) {
			d.s.last = token - 1
		}
		return nil
	})
	if broken != nil && broken.held && broken.d.tell != nil && !d.s.has(BreakNotPushed) && !broken.d.isCut() {
		broken.d.tell(broken.r.Hold(broken.token), errBroken)
	}
	return err
}

func (d *Driver) isCut() bool {
	d.s.mu.Lock()
	defer d.s.mu.Unlock()
	return d.cut || d.drop
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) (tickets []driver.Ticket, err error) {
	err = d.ask(ctx, func() error {
		tickets = nil
		ln, err := d.s.line(name)
		if err != nil {
			return err
		}
		defer ln.settle()
		for _, t := range ln.tickets {
			tickets = append(tickets, d.s.show(t))
		}
		return nil
	})
	if d.s.has(Unordered) {
		slices.Reverse(tickets)
	}
	if d.s.has(ShowsTen) {
		tickets = tickets[:min(len(tickets), 10)]
	}
	return tickets, err
}

func (s *Store) show(t *ticket) driver.Ticket {
	v := t.r.Ticket(t.token)
	v.Held, v.Since = t.held, t.since
	if t.held {
		v.Remaining = time.Until(t.until)
	}
	switch s.bug {
	case NoNotes:
		v.Note = ""
	case CutsTexts:
		v.Owner, _, _ = strings.Cut(v.Owner, "\x00")
		v.Note, _, _ = strings.Cut(v.Note, "\x00")
	case NoRemaining:
		v.Remaining = 0
	case WrongSince:
		v.Since = time.Unix(1, 0)
	}
	return v
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) (names []string, err error) {
	err = d.ask(ctx, func() error {
		for _, ln := range d.s.lines {
			ln.settle()
		}
		for name := range d.s.lines {
			names = append(names, name)
		}
		if d.s.has(ListsIdle) {
			for name := range d.s.idleAt {
				names = append(names, name)
			}
		}
		return nil
	})
	return names, err
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(tell func(driver.Hold, error)) { d.tell = tell }

// Bounds implements driver.Bounder.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{Crash: ttl, Liveness: Liveness}
}

// String names the store.
func (d *Driver) String() string { return "mutant" }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	s := d.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.closed {
		if s.has(SecondCloseErrs) {
			return errTwice
		}
		return nil
	}
	d.closed = true
	close(d.closing)
	if s.has(GoroutineStays) {
		go time.Sleep(time.Hour)
	}
	if s.has(CloseTakesAll) {
		for _, ln := range s.lines {
			for _, t := range slices.Clone(ln.tickets) {
				ln.remove(t)
			}
		}
	}
	return nil
}

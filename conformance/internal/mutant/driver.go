package mutant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

var (
	errDown     = errors.New("mutant: the server is down")
	errReset    = errors.New("mutant: the connection was reset, and an answer with it")
	errNoAnswer = errors.New("mutant: no answer")
	errBroken   = errors.New("mutant: broken")
	errGone     = fmt.Errorf("%w: mutant: broken", driver.ErrLost)
	errTwice    = errors.New("mutant: closed twice")
)

// Driver is a client. It is its own Link.
type Driver struct {
	s          *Store
	closing    chan struct{}
	conns      chan struct{} // those in use, for the bugs that have few of them; else nil
	notifyLoss func(driver.Hold, error)

	// guarded by s.mu
	closed bool
	cut    bool
	drop   bool
	wasCut bool
	tokens uint64
	forgot map[string]bool // for ForgetsRelease: tickets
	heard  map[string]bool // for HeardOnce: names
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.Lister       = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.LossNotifier = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
	_ driver.Shortener    = (*Driver)(nil)
)

// Open returns a client.
func (s *Store) Open() *Driver {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &Driver{s: s, closing: make(chan struct{}), heard: make(map[string]bool)}
	switch s.bug {
	case FewConnections:
		d.conns = make(chan struct{}, 4)
	case JoinedBlocks:
		d.conns = make(chan struct{}, 1)
	}
	s.clients = append(s.clients, d)
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

// connected returns once the client can reach the server.
func (d *Driver) connected(ctx context.Context, answer bool) error {
	s := d.s
	for waited := false; ; waited = true {
		s.mu.Lock()
		cut := d.cut || s.paused || !s.up || answer && d.drop || s.has(NeverReconnects) && d.wasCut
		up, closed, changed := s.up, d.closed && !s.has(WorksClosed), s.changed
		s.mu.Unlock()
		switch {
		case closed:
			return driver.ErrClosed
		case !up && !s.has(SaysNoReason):
			return errDown
		case !cut && answer && waited:
			return errReset // the answer that was under way is lost
		case !cut:
			return nil
		}
		select {
		case <-changed:
		case <-d.closing:
			return driver.ErrClosed
		case <-ctx.Done():
			s.delayReturn()
			if s.has(SaysNoReason) {
				return context.Cause(ctx)
			}
			return errors.Join(context.Cause(ctx), errNoAnswer)
		}
	}
}

// delayReturn delays a return after the end of its context, for the bugs that do.
func (s *Store) delayReturn() {
	switch s.bug {
	case IgnoresContext:
		time.Sleep(30 * time.Second)
	case NeverReturns:
		time.Sleep(time.Hour)
	case SlowContext:
		time.Sleep(time.Second)
	case ReturnsLate:
		time.Sleep(100 * time.Millisecond)
	}
}

// connection takes a connection, until free is called.
func (d *Driver) connection(ctx context.Context) (free func(), err error) {
	if d.conns == nil {
		return func() {}, nil
	}
	select {
	case d.conns <- struct{}{}:
		return func() { <-d.conns }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// ask sends a request, which f executes with the store locked.
func (d *Driver) ask(ctx context.Context, f func() error) error {
	free, err := d.connection(ctx)
	if err != nil {
		return err
	}
	defer free()
	if err := d.connected(ctx, false); err != nil {
		return d.unknown(err)
	}
	if err := d.stall(ctx); err != nil {
		return d.unknown(err)
	}
	if ctx.Err() != nil {
		return d.unknown(errors.Join(context.Cause(ctx), errNoAnswer))
	}
	d.s.mu.Lock()
	err = f()
	d.s.mu.Unlock()
	if lost := d.connected(ctx, true); lost != nil {
		return d.unknown(lost)
	}
	return err
}

// askLate is ask for a request that may be executed after its caller has given up.
func (d *Driver) askLate(ctx context.Context, f func() error) error {
	err := d.ask(ctx, f)
	if err != nil && ctx.Err() != nil && !errors.Is(err, errReset) {
		go d.late(f)
	}
	return err
}

// late executes a request after its caller has given up, as a slow network does.
func (d *Driver) late(f func() error) {
	if d.connected(context.Background(), false) == nil {
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
	case d.s.has(Unmarked):
		return err
	}
	return driver.Unavailable(err)
}

// Ping implements driver.Pinger.
func (d *Driver) Ping(ctx context.Context) error {
	if d.s.has(PingLies) {
		return nil
	}
	return d.ask(ctx, func() error { return nil })
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(notify func(driver.Hold, error)) { d.notifyLoss = notify }

// Bounds implements driver.Bounder.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	b := driver.Bounds{Crash: ttl, Liveness: Liveness}
	switch d.s.bug {
	case StatesHalf:
		b.Crash = ttl / 2
	case SilentWaits:
		b.Silence = time.Second
	}
	return b
}

// String names the store.
func (d *Driver) String() string { return "mutant" }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	s := d.s
	if s.has(CloseWaits) && d.isCut() {
		time.Sleep(500 * time.Millisecond)
	}
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
	for _, q := range s.queues {
		for _, t := range slices.Clone(q.tickets) {
			if s.has(CloseTakesAll) || s.has(CloseTakesWaiters) && t.d != d && !t.held || s.has(CloseTakesHeld) && t.d == d && t.r.MinHold > 0 {
				q.remove(t)
			}
		}
	}
	return nil
}

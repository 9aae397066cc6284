package locker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Times that bound what the core does on its own account.
const (
	joinBound    = 10 * time.Second       // a store that does not answer an acquisition
	releaseBound = 5 * time.Second        // a release, with its retries
	undoWait     = time.Second            // how long a failed acquisition waits for its undoing
	undoBound    = 30 * time.Second       // undoing in the background
	undoLate     = 3 * time.Second        // when a ticket that was not there is looked for again
	retryFirst   = 20 * time.Millisecond  // between two tries of a request whose answer never came
	retryMost    = 500 * time.Millisecond // the same, at the most
)

// Client is the Locker over a driver. The zero Client is not usable; see New
// and Open.
type Client struct {
	d         driver.Driver
	store     string // what errors call the store
	defaults  []Option
	observers []func(context.Context, Event)
	grace     time.Duration
	graceSet  bool

	process string // the default owner
	idBase  string // what the ticket IDs of this Client begin with
	idSeq   atomic.Uint64

	closing   chan struct{} // closed when Close begins
	finishing context.Context
	finish    context.CancelFunc // ends the requests that Close waited for too long
	work      sync.WaitGroup     // renewals, undoings, the scheduler

	mu       sync.Mutex
	closed   bool
	leases   map[string]*lease   // held, by ticket ID
	owned    map[ownerKey]*entry // by explicit owner
	attempts map[*attempt]struct{}
	schedule schedule
}

var _ Locker = (*Client)(nil)

// New makes a Client over a driver, which it closes when it is closed. It
// does not reach the store. It panics when d is nil; a negative grace is
// ErrInvalidOption from every acquisition.
func New(d driver.Driver, opts ...ClientOption) *Client {
	if d == nil {
		panic("locker: New: the driver is nil")
	}
	c := &Client{
		d: d, store: storeName(d),
		closing:  make(chan struct{}),
		leases:   make(map[string]*lease),
		owned:    make(map[ownerKey]*entry),
		attempts: make(map[*attempt]struct{}),
	}
	c.finishing, c.finish = context.WithCancel(context.Background())
	c.schedule.wake = make(chan struct{}, 1)
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	c.idBase = hex.EncodeToString(id[:]) + "-"
	host, _ := os.Hostname()
	c.process = fmt.Sprintf("%.64s/%d/%s", host, os.Getpid(), c.idBase[:8])
	if n, ok := d.(driver.LossNotifier); ok {
		n.NotifyLoss(c.lost)
	}
	return c
}

// Open makes a Client from a URL, with the driver that is registered for its
// scheme: import the driver's package. The parameters that all stores know are
// prefix (of what the store holds, default "locker") and ttl (the default
// lease, as for time.ParseDuration). Errors never tell the password.
func Open(ctx context.Context, url string, opts ...ClientOption) (*Client, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("locker: open: %w", err)
	}
	ttl := u.Duration("ttl", DefaultTTL)
	d, err := driver.Open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("locker: open %s: %w", u.Redacted(), err)
	}
	if err := u.Done(); err != nil { // of the ttl, if the driver did not look
		return nil, errors.Join(fmt.Errorf("locker: open %s: %w", u.Redacted(), err), d.Close())
	}
	return New(d, append([]ClientOption{WithDefaults(WithTTL(ttl))}, opts...)...), nil
}

// storeName is how errors name the store.
func storeName(d driver.Driver) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d)
}

// newID makes the ID of a ticket, unique for ever.
func (c *Client) newID() string {
	var buf [40]byte
	b := append(buf[:0], c.idBase...)
	return string(strconv.AppendUint(b, c.idSeq.Add(1), 36))
}

// Close implements Locker.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.closing)
	held := make([]*lease, 0, len(c.leases))
	for _, l := range c.leases {
		held = append(held, l)
	}
	waiting := make([]*attempt, 0, len(c.attempts))
	for a := range c.attempts {
		waiting = append(waiting, a)
	}
	c.mu.Unlock()

	for _, a := range waiting {
		a.end(ErrClosed)
	}
	errs := c.releaseAll(held)
	stop := time.AfterFunc(releaseBound, c.finish)
	c.work.Wait()
	stop.Stop()
	c.finish()
	if err := c.d.Close(); err != nil {
		errs = append(errs, c.fail("close", "", err))
	}
	return errors.Join(errs...)
}

// releaseAll releases leases a few at a time and returns what went wrong.
// A lock that was lost is nothing that Close could still release.
func (c *Client) releaseAll(held []*lease) []error {
	const atOnce = 64
	var (
		mu    sync.Mutex
		errs  []error
		group sync.WaitGroup
		slots = make(chan struct{}, atOnce)
	)
	ctx, cancel := context.WithTimeout(context.Background(), releaseBound)
	defer cancel()
	for _, l := range held {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			err := c.releaseLease(ctx, l)
			if err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrReleased) {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, c.fail("release", l.hold.Name, err))
			}
		})
	}
	group.Wait()
	return errs
}

package sqlite

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// DefaultBusyTimeout is how long a request waits for other processes to end their transactions, unless
// WithBusyTimeout sets another time.
const DefaultBusyTimeout = 5 * time.Second

const (
	liveness  = 4 * time.Second // of a process that waits, after a heartbeat
	heartbeat = liveness / 4

	pollInterval    = 250 * time.Millisecond // of a process that waits: for what expires
	pollWithoutPipe = 20 * time.Millisecond
	retryInterval   = 100 * time.Millisecond
	sweepInterval   = 20 * time.Second // of a process that does not wait
	crashSlack      = 500 * time.Millisecond

	lossKept   = time.Minute // how long a break is kept for its process to read
	closeBound = 100 * time.Millisecond
)

// Option changes how New opens a file.
type Option func(*options)

type options struct {
	create    bool
	busy      time.Duration
	sweep     time.Duration
	intercept interceptor
}

// WithoutCreate makes New fail if the file, or the tables in it, do not exist.
func WithoutCreate() Option { return func(o *options) { o.create = false } }

// WithBusyTimeout sets how long a request waits for other processes to end their transactions before it fails;
// the default is 5 s. Transactions take less than a millisecond, unless the disk hangs or a process is stopped
// inside one.
func WithBusyTimeout(d time.Duration) Option { return func(o *options) { o.busy = d } }

// Driver keeps tickets in a database file. See the package comment.
type Driver struct {
	s          *store
	sweep      time.Duration
	process    string // the ID of its row and the name of its pipe
	notifyLoss func(driver.Hold, error)

	started  sync.Once
	listener *listener     // set with the first Acquire
	ended    chan struct{} // closed when the background task has ended
	idle     atomic.Bool   // the background task does not poll: nobody waits
	waiters  waiters

	closing chan struct{}
	closed  sync.Once
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Lister       = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.LossNotifier = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
	_ driver.Shortener    = (*Driver)(nil)
	_ fmt.Stringer        = (*Driver)(nil)
)

// New opens the database file at path. If the file or its folder does not exist, the first Acquire makes it. Several
// drivers may use one file, in one process or in many.
func New(path string, opts ...Option) (*Driver, error) {
	o := options{create: true, busy: DefaultBusyTimeout, sweep: sweepInterval, intercept: direct}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if path == "" || path == ":memory:" {
		return nil, fmt.Errorf("sqlite: New: want the path of a file, got %q (package memory keeps locks in memory)", path)
	}
	if o.busy <= 0 {
		return nil, fmt.Errorf("sqlite: New: busy timeout %v: want more than zero", o.busy)
	}
	s, err := openStore(context.Background(), path, o)
	if err != nil {
		return nil, fmt.Errorf("sqlite: opening %s: %w", path, err)
	}
	return &Driver{
		s: s, sweep: o.sweep, process: rand.Text(), ended: make(chan struct{}), closing: make(chan struct{}),
		waiters: waiters{byID: make(map[string]*waiter)},
	}, nil
}

// String names the store.
func (d *Driver) String() string { return "sqlite" }

// Bounds implements driver.Bounder.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MinTTL: 10 * time.Millisecond, Crash: ttl + crashSlack, Liveness: liveness + crashSlack}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(notify func(driver.Hold, error)) { d.notifyLoss = notify }

// Acquire implements driver.Driver. One transaction queues the ticket, and grants it if it is grantable.
// Otherwise the background task claims the grant later.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	select {
	case <-d.closing:
		return driver.Grant{}, driver.ErrClosed
	default:
	}
	if !d.s.isOpen.Load() { // make the file: the pipes lie beside it
		if _, err := run(ctx, d.s, d.closing, acquires, func(*tx) (struct{}, error) { return struct{}{}, nil }); err != nil {
			return driver.Grant{}, driver.NoTicket(err)
		}
	}
	d.start() // before the ticket is queued, so that no notification is missed
	w := &waiter{name: r.Name, answer: make(chan answer, 1)}
	defer d.waiters.remove(r.ID, w)

	asked := time.Now()
	token, err := run(ctx, d.s, d.closing, acquires, func(t *tx) (uint64, error) { return t.acquire(d, r, w) })
	if err != nil {
		return driver.Grant{}, err
	}
	if token != 0 {
		return driver.Grant{Token: token, Asked: asked}, nil
	}
	if d.idle.Load() {
		d.listener.wake()
	}
	if r.Joined != nil {
		r.Joined()
	}
	select {
	case a := <-w.answer:
		return a.grant, a.err
	case <-ctx.Done():
		return driver.Grant{}, errors.Join(context.Cause(ctx), d.s.lastError())
	case <-d.closing:
		return driver.Grant{}, driver.ErrClosed
	}
}

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer, in one transaction.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs, err := run(ctx, d.s, d.closing, writes, func(t *tx) ([]error, error) {
		errs := make([]error, len(rs))
		for i, r := range rs {
			n, _, err := t.count(sqlExtend, t.after(r.TTL), []byte(r.Name), r.ID)
			if err != nil {
				return nil, err
			}
			if n == 0 { // expired tickets were removed at the beginning of the transaction
				errs[i] = driver.ErrLost
			}
		}
		return errs, nil
	})
	if err != nil {
		errs = make([]error, len(rs))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	return d.remove(ctx, h.Name, func(t *tx, tk ticket) error {
		switch {
		case tk.process == d.process: // end its Acquire if it still waits
			d.waiters.deliver(tk.ID, answer{err: driver.ErrLost})
		case !tk.held:
			return t.recordLoss(tk)
		}
		return nil
	}, sqlFind, h.ID)
}

// Break implements driver.Breaker. It notifies the process of the ticket.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	return d.remove(ctx, name, (*tx).recordLoss, sqlFindToken, int64(token)) //nolint:gosec // no ticket has a greater one
}

// remove deletes the ticket that a query finds, after before has been called for it.
func (d *Driver) remove(ctx context.Context, name string, before func(*tx, ticket) error, query string, key any) error {
	_, err := run(ctx, d.s, d.closing, writes, func(t *tx) (struct{}, error) {
		tk, found, err := t.find(name, query, key)
		if err == nil && !found {
			err = driver.ErrLost
		}
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, cmp.Or(before(t, tk), t.exec(sqlDelete, tk.Token), t.settle(name))
	})
	return err
}

// Inspect implements driver.Driver. It reads, and waits for no other process.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	return run(ctx, d.s, d.closing, reads, func(t *tx) ([]driver.Ticket, error) { return t.show(name) })
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	return run(ctx, d.s, d.closing, reads, func(t *tx) ([]string, error) { return t.names(sqlList, t.now) })
}

// Shorten implements driver.Shortener. Waiting processes poll often enough to notice.
func (d *Driver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	_, err := run(ctx, d.s, d.closing, writes, func(t *tx) (struct{}, error) {
		n, _, err := t.count(sqlShorten, t.after(left), []byte(h.Name), h.ID)
		if err == nil && n == 0 {
			err = driver.ErrLost
		}
		return struct{}{}, err
	})
	return err
}

// Ping implements driver.Pinger. It writes, as every acquisition does. Where there is no database yet, it checks whether
// one may be made.
func (d *Driver) Ping(ctx context.Context) error {
	_, err := run(ctx, d.s, d.closing, pings, func(t *tx) (struct{}, error) { return struct{}{}, t.exec(sqlPing) })
	return err
}

// Close implements driver.Driver. Waiting tickets that the core has not released expire.
func (d *Driver) Close() error {
	d.closed.Do(func() {
		close(d.closing)
		d.started.Do(func() { close(d.ended) }) // if the background task was not started, it never will be
		if d.listener != nil {
			d.listener.close()
		}
		d.s.close(closeBound)
		<-d.ended
	})
	return nil
}

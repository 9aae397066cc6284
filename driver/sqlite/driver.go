package sqlite

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

func init() { driver.Register("sqlite", openURL) }

// DefaultBusyTimeout is how long a request waits for other processes to end their
// transactions, unless WithBusyTimeout says otherwise.
const DefaultBusyTimeout = 5 * time.Second

const (
	liveness  = 4 * time.Second // of a process that waits, after a heartbeat
	heartbeat = liveness / 4

	pollInterval    = 250 * time.Millisecond // of who waits and is notified: for what expires
	pollWithoutPipe = 20 * time.Millisecond
	afterFailure    = 100 * time.Millisecond
	sweepInterval   = 20 * time.Second // of who does not wait
	crashSlack      = 500 * time.Millisecond

	lossKept   = time.Minute // how long a process may take to hear of a break
	closeBound = 100 * time.Millisecond
)

// Option changes how New works with a file.
type Option func(*options)

type options struct {
	create  bool
	busy    time.Duration
	sweep   time.Duration
	through through
}

// WithoutCreate keeps New from making the file, and tables in it.
func WithoutCreate() Option { return func(o *options) { o.create = false } }

// WithBusyTimeout sets how long a request waits for other processes to end their
// transactions before it fails; 5 s unless it is given. They take less than a millisecond, unless
// the disk hangs or a process is stopped in the middle of one.
func WithBusyTimeout(d time.Duration) Option { return func(o *options) { o.busy = d } }

// Driver takes tickets in a database file. See the package comment.
type Driver struct {
	s       *store
	sweep   time.Duration
	process string // its row, and its pipe
	tell    func(driver.Hold, error)

	listening sync.Once
	listener  *listener     // once a ticket was asked for
	watching  chan struct{} // closed when the background task has ended
	resting   atomic.Bool   // it does not look often: nobody waits

	waiters waiters

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
	_ fmt.Stringer        = (*Driver)(nil)
)

// New opens the database file at path, and makes it, with its folder, if it is not
// there. Several drivers may use one file, in one process or in many.
func New(path string, opts ...Option) (*Driver, error) {
	o := options{create: true, busy: DefaultBusyTimeout, sweep: sweepInterval, through: direct}
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
		s: s, sweep: o.sweep, process: rand.Text(), watching: make(chan struct{}), closing: make(chan struct{}),
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
func (d *Driver) NotifyLoss(tell func(driver.Hold, error)) { d.tell = tell }

// Ping implements driver.Pinger: it writes, as every acquisition does.
func (d *Driver) Ping(ctx context.Context) error {
	_, err := ask(ctx, d.s, d.closing, writes, func(t *tx) (struct{}, error) { return struct{}{}, t.exec(sqlPing) })
	return err
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.closed.Do(func() {
		close(d.closing)
		begun := time.Now()
		d.listening.Do(func() { close(d.watching) }) // nobody listens, and nobody will
		if d.listener != nil {
			d.leave()
			d.listener.close()
		}
		d.s.close(max(0, closeBound-time.Since(begun)) + 20*time.Millisecond)
		<-d.watching
	})
	return nil
}

// leave removes the tickets that wait, and the process, unless the store is slow.
func (d *Driver) leave() {
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	// What is not removed now expires: nobody needs the error.
	_, _ = ask(ctx, d.s, nil, writes, func(t *tx) (struct{}, error) {
		names, err := t.names(sqlLeaveTickets, d.process)
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errors.Join(t.exec(sqlLeave, d.process), t.settleAll(names))
	})
}

package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlline"
)

// Defaults and bounds.
const (
	DefaultPrefix   = "locker"
	DefaultLiveness = sqlline.DefaultLiveness

	crashSlack = 500 * time.Millisecond // the poller's longest interval, and a few commits
)

// Option changes how New works with a database.
type Option func(*options)

type options struct {
	prefix   string
	liveness time.Duration
	create   bool
	address  string
	logger   *slog.Logger

	sweepEvery, sweepRest time.Duration
}

// WithPrefix sets what the names of the tables begin with, "locker" unless it is
// given: 1 to 40 letters, digits, _, $ or -.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithLiveness sets how long a waiter may be silent before its place in line is
// lost; 4 s unless it is given. An outage that is shorter costs no place. A
// process that waits sends a beat every quarter of it.
func WithLiveness(d time.Duration) Option { return func(o *options) { o.liveness = d } }

// WithoutCreate keeps the driver from creating its tables when they are not
// there; see Schema.
func WithoutCreate() Option { return func(o *options) { o.create = false } }

// WithLogger has the client of a driver that [Open] makes log there what it meets:
// connections that failed. Unless set it logs nothing, since errors are returned. New refuses
// it: a database that is there already logs as its DSN says (mysql.Config.Logger, mysql.SetLogger).
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

func newOptions(opts []Option) (options, error) {
	o := options{prefix: DefaultPrefix, liveness: DefaultLiveness, create: true, sweepEvery: sweepEvery, sweepRest: sweepRest}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o, sqlline.CheckLiveness(o.liveness)
}

// Driver takes tickets in a MySQL or MariaDB database. See the package comment.
type Driver struct {
	opts  options
	w     *wire
	db    *sql.DB
	owned bool // db is ours to close

	migrating chan struct{} // held while the tables are being made
	made      atomic.Bool   // they were there: they are not made again
	side      side
	suspect   atomic.Bool // idle connections may be dead
	poller    poller
	clock     clock
	keeper    keeper
	txLines   txLines
	sweeping  atomic.Bool // a sweep is planned

	mu      sync.Mutex
	pending map[string]*taking // by ID: tickets that are being taken
	unknown map[string]unknown // by ID: tickets of which a request was not answered
	queued  map[string]behind  // by ID: tickets that stand behind a gate
	broom   *time.Timer

	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	closed sync.Once
	work   sync.WaitGroup
}

var (
	_ driver.Driver       = (*Driver)(nil)
	_ driver.BatchRenewer = (*Driver)(nil)
	_ driver.Lister       = (*Driver)(nil)
	_ driver.Breaker      = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
	_ fmt.Stringer        = (*Driver)(nil)
)

// New makes a driver over a database, which it does not close. It does not
// reach it. db has to be one of github.com/go-sql-driver/mysql that names a
// database, with autocommit on; the driver sets nothing in its sessions.
func New(db *sql.DB, opts ...Option) (*Driver, error) {
	if db == nil {
		return nil, errors.New("mysql: New: the database is nil")
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("mysql: New: %w", err)
	}
	w, err := newWire(current, o.prefix)
	if err != nil {
		return nil, fmt.Errorf("mysql: New: %w", err)
	}
	if o.logger != nil {
		return nil, errors.New("mysql: New: WithLogger is for Open: the database logs as its DSN says")
	}
	return newDriver(db, o, w), nil
}

func newDriver(db *sql.DB, o options, w *wire) *Driver {
	d := &Driver{
		opts: o, w: w, db: db, migrating: make(chan struct{}, 1),
		pending: make(map[string]*taking), queued: make(map[string]behind),
		unknown: make(map[string]unknown), side: side{turn: make(chan struct{}, 1)},
	}
	d.keeper.names = make(map[string]*use)
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.poller.init(d)
	return d
}

// Schema returns the SQL that makes the tables, for those who may not let the
// driver do so.
func (d *Driver) Schema() string { return d.w.schema() }

// String names the store: its address where the driver opened it, and the
// prefix where it is not the usual one.
func (d *Driver) String() string {
	s := "mysql"
	if d.opts.address != "" {
		s += " " + d.opts.address
	}
	if d.opts.prefix != DefaultPrefix {
		s += " " + d.opts.prefix
	}
	return s
}

// Bounds implements driver.Bounder.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MinTTL: sqlline.MinTTL, Crash: ttl + crashSlack, Liveness: d.opts.liveness + crashSlack}
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	var err error
	d.closed.Do(func() {
		d.mu.Lock()
		d.stop()
		if d.broom != nil {
			d.broom.Stop()
		}
		d.mu.Unlock()
		d.work.Wait()
		d.tidy()
		if d.owned {
			err = d.db.Close()
		}
	})
	return err
}

// begin starts a goroutine that Close waits for; false when Close has begun.
func (d *Driver) begin(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return false
	}
	d.work.Go(f)
	return true
}

// failed is the error to tell of a request: that of ctx where ctx has ended,
// ErrClosed after Close, and marked where the server refuses everybody.
func (d *Driver) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case d.ctx.Err() != nil:
		return driver.ErrClosed
	case unavailable(err):
		err = driver.Unavailable(err)
	}
	if ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

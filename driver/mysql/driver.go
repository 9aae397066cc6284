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
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Defaults and bounds.
const (
	DefaultPrefix   = "locker"
	DefaultLiveness = sqlqueue.DefaultLiveness

	closeBound = 100 * time.Millisecond // for the requests of Close
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
}

// WithPrefix sets the beginning of the names of the tables: 1 to 40 letters, digits, _, $ or -; the
// default is "locker".
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithLiveness sets how long a waiter may be silent before its ticket expires; 4 s
// unless it is given. A shorter outage costs no waiter its ticket. A process that
// waits sends a heartbeat every quarter of it.
func WithLiveness(d time.Duration) Option { return func(o *options) { o.liveness = d } }

// WithoutCreate keeps the driver from creating its tables when they are missing; see
// Schema.
func WithoutCreate() Option { return func(o *options) { o.create = false } }

// WithLogger sets where the client of a driver that [Open] creates logs failed
// connections. Without it the client logs nothing, since errors are returned. New refuses
// it: an existing database logs as its DSN says (mysql.Config.Logger, mysql.SetLogger).
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

func newOptions(opts []Option) (options, error) {
	o := options{prefix: DefaultPrefix, liveness: DefaultLiveness, create: true}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o, sqlqueue.CheckLiveness(o.liveness)
}

// Driver takes tickets in a MySQL or MariaDB database. See the package comment.
type Driver struct {
	opts  options
	w     *wire
	db    *sql.DB
	owned bool // db is ours to close

	creating  chan struct{} // held while the tables are being created
	created   atomic.Bool   // they were there: they are not created again
	extra     chan struct{} // held while there is a connection beyond the pool's limit
	idleStale atomic.Bool   // idle connections may have ended
	known     atomic.Pointer[server]
	before    atomic.Uint64 // the start of the server that was known last
	poller    poller
	anchors   anchors
	txQueues  txQueues
	sweeping  atomic.Bool

	mu      sync.Mutex
	tickets map[string]*ticketState // by ID

	ctx    context.Context // ends with Close
	stop   context.CancelFunc
	closed sync.Once
	work   sync.WaitGroup
}

var (
	_ driver.Driver          = (*Driver)(nil)
	_ driver.BatchRenewer    = (*Driver)(nil)
	_ driver.Lister          = (*Driver)(nil)
	_ driver.Breaker         = (*Driver)(nil)
	_ driver.Bounder         = (*Driver)(nil)
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ driver.Shortener       = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// New returns a driver for db, which it neither contacts nor closes. db has to be of github.com/go-sql-driver/mysql,
// with a DSN that names a database, and with autocommit on; the driver sets nothing in its sessions.
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
		opts: o, w: w, db: db, creating: make(chan struct{}, 1), extra: make(chan struct{}, 1),
		txQueues: txQueues{names: make(map[string]*txQueue)}, tickets: make(map[string]*ticketState),
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.poller.init(d)
	d.anchors = anchors{d: d, names: make(map[string]*anchor)}
	return d
}

// Schema returns the SQL that creates the tables, for programs that do not let the driver create them.
func (d *Driver) Schema() string { return d.w.schema() }

// String names the store: its address if the driver was opened by URL, and the prefix if it is not
// the default.
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
	return driver.Bounds{MinTTL: sqlqueue.MinTTL, Crash: ttl + crashSlack, Liveness: d.opts.liveness + crashSlack}
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	var err error
	d.closed.Do(func() {
		d.mu.Lock()
		d.stop()
		d.mu.Unlock()
		d.work.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		d.anchors.clear(ctx, 0)
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

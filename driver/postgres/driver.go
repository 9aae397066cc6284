package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlline"
)

// Defaults and bounds.
const (
	DefaultPrefix   = "locker"
	DefaultSchema   = "public"
	DefaultLiveness = sqlline.DefaultLiveness

	crashSlack = 500 * time.Millisecond // timers, the poller, a commit
)

// Option changes how New works with a database.
type Option func(*options)

type options struct {
	prefix, schema string
	liveness       time.Duration
	listen, create bool
	sweepEvery     time.Duration
	logger         *slog.Logger
}

// WithPrefix sets what the names of the tables, functions and channels begin
// with; "locker" unless it is given. At most 40 bytes.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithSchema sets the database schema that holds them; "public" unless it is
// given.
func WithSchema(schema string) Option { return func(o *options) { o.schema = schema } }

// WithLiveness sets how long a waiter may be silent before it loses its place in the
// queue; 4 s unless it is given. An outage that is shorter costs no place. A
// process that waits sends a heartbeat every quarter of it.
func WithLiveness(d time.Duration) Option { return func(o *options) { o.liveness = d } }

// WithoutListen keeps the driver from opening a connection of its own to LISTEN
// on. Grants are polled for, then. Behind a pooler (PgBouncer) this happens by itself;
// the option saves the attempt.
func WithoutListen() Option { return func(o *options) { o.listen = false } }

// WithoutCreate keeps the driver from creating its tables and functions when
// they are not there; see Schema.
func WithoutCreate() Option { return func(o *options) { o.create = false } }

// WithLogger has the client of a driver that [Open] makes log there what it meets: warnings
// and notices of the database, and connections that failed. Unless set it logs nothing, since errors are
// returned. New refuses it: a pool that is there already logs as its configuration says
// (OnNotice, Tracer).
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

func newOptions(opts []Option) (options, error) {
	o := options{
		prefix: DefaultPrefix, schema: DefaultSchema, liveness: DefaultLiveness,
		listen: true, create: true, sweepEvery: sweepEvery,
	}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o, sqlline.CheckLiveness(o.liveness)
}

// Driver takes tickets in a PostgreSQL database. See the package comment.
type Driver struct {
	opts   options
	w      *wire
	pool   *pgxpool.Pool
	owned  bool // the pool is ours to close
	mode   pgx.QueryExecMode
	plain  atomic.Bool   // prepared statements do not outlive a transaction here
	strict atomic.Bool   // the database's default isolation has to be overridden
	side   chan sideConn // the one connection beside the pool, for when that is exhausted
	create chan struct{} // held while the schema is being created
	used   atomic.Bool   // the schema was there
	clock  clock         // of the database

	registering chan struct{} // held while the process is being made known

	line     line
	tell     func(driver.Hold, error)
	sweeping atomic.Bool // the background task that sweeps runs

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
	_ driver.LossNotifier = (*Driver)(nil)
	_ driver.Bounder      = (*Driver)(nil)
	_ driver.Pinger       = (*Driver)(nil)
	_ fmt.Stringer        = (*Driver)(nil)
)

// New makes a driver over a pool, which it does not close. It does not reach
// the database.
func New(pool *pgxpool.Pool, opts ...Option) (*Driver, error) {
	if pool == nil {
		return nil, errors.New("postgres: New: the pool is nil")
	}
	o, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("postgres: New: %w", err)
	}
	w, err := newWire(current, o.schema, o.prefix)
	if err != nil {
		return nil, fmt.Errorf("postgres: New: %w", err)
	}
	if o.logger != nil {
		return nil, errors.New("postgres: New: WithLogger is for Open: the pool logs as its configuration says")
	}
	return newDriver(pool, o, w), nil
}

func newDriver(pool *pgxpool.Pool, o options, w *wire) *Driver {
	d := &Driver{
		opts: o, w: w, pool: pool,
		mode: pool.Config().ConnConfig.DefaultQueryExecMode, side: make(chan sideConn, 1), create: make(chan struct{}, 1),
		registering: make(chan struct{}, 1),
	}
	d.side <- sideConn{} // none is open yet
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.line.init(o.liveness)
	return d
}

// Schema returns the SQL that creates what the driver needs, or moves what an earlier version
// has created to this one: for those whose program may not do so itself (WithoutCreate). It
// has no transaction control of its own: run it in one transaction, as psql -1,
// migration tools and an Exec without arguments do. It may be run again, which changes
// nothing and stops nobody. The package comment lists the rights that the program's user needs.
func Schema(opts ...Option) (string, error) {
	o, err := newOptions(opts)
	if err != nil {
		return "", fmt.Errorf("postgres: Schema: %w", err)
	}
	w, err := newWire(current, o.schema, o.prefix)
	if err != nil {
		return "", fmt.Errorf("postgres: Schema: %w", err)
	}
	return w.schema, nil
}

// String names the store.
func (d *Driver) String() string {
	c := d.pool.Config().ConnConfig
	return fmt.Sprintf("postgres %s:%d/%s", c.Host, c.Port, c.Database)
}

// Bounds implements driver.Bounder.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{
		MinTTL: sqlline.MinTTL,
		Crash:  ttl + crashSlack,
		// The last beat, and until somebody looks.
		Liveness: d.opts.liveness + d.opts.liveness/4 + crashSlack,
	}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(tell func(driver.Hold, error)) { d.tell = tell }

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.closed.Do(d.shutDown)
	return nil
}

// closeBound is how long Close waits for a database that does not answer.
const closeBound = 100 * time.Millisecond

func (d *Driver) shutDown() {
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	d.line.mu.Lock() // under which goroutines are started
	d.stop()
	d.line.mu.Unlock()
	within(ctx, d.work.Wait)
	if process, ok := d.line.unregister(true); ok {
		_ = d.exec(ctx, d.w.leave, process) // if not reached, it expires
	}
	select {
	case c := <-d.side:
		if c.Conn != nil {
			hangUp(context.Background(), c.Conn)
		}
	default: // who uses it closes it
	}
	if d.owned {
		within(ctx, d.pool.Close) // waits for requests that are under way: they end with their contexts
	}
}

// within runs f, and waits for it until ctx ends.
func within(ctx context.Context, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

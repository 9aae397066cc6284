package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Driver takes tickets in a PostgreSQL database. See the package comment.
type Driver struct {
	opts       options
	w          *wire
	pool       *pgxpool.Pool
	owned      bool // the pool is ours to close
	mode       pgx.QueryExecMode
	clock      clock // of the database
	notifyLoss func(driver.Hold, error)

	unprepared atomic.Bool // prepared statements do not outlive a transaction here
	strict     atomic.Bool // the database's default isolation has to be overridden
	used       atomic.Bool // the tables were there
	spare      chan spare  // the one spare connection, unless it is in use

	creating    chan struct{} // see lock: one goroutine creates the tables,
	registering chan struct{} // and one registers the process

	waiters waiters

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
	_ driver.LossNotifier    = (*Driver)(nil)
	_ driver.Bounder         = (*Driver)(nil)
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ driver.Shortener       = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// Defaults of the options.
const (
	DefaultPrefix   = "locker"
	DefaultSchema   = "public"
	DefaultLiveness = sqlqueue.DefaultLiveness
)

// An Option changes a Driver. A nil Option does nothing.
type Option func(*options)

type options struct {
	prefix, schema string
	liveness       time.Duration
	listen, create bool
	listenIdle     time.Duration
	sweepEvery     time.Duration
	logger         *slog.Logger
}

// WithPrefix sets the beginning of the names of the tables, functions and channels; the default is
// "locker". At most 40 bytes.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithSchema sets the database schema of the tables and functions; the default is "public".
func WithSchema(schema string) Option { return func(o *options) { o.schema = schema } }

// WithLiveness sets how long a waiting process may be silent before its tickets leave the queue; 4 s unless it is
// given. A shorter outage costs no ticket. A process that waits sends a heartbeat every quarter of it.
func WithLiveness(d time.Duration) Option { return func(o *options) { o.liveness = d } }

// WithoutListen keeps the driver from opening a connection of its own to LISTEN on. It polls for grants instead. Behind
// a pooler (PgBouncer) it polls without this option, which saves the attempt.
func WithoutListen() Option { return func(o *options) { o.listen = false } }

// WithoutCreate keeps the driver from creating its tables and functions if they do not exist; see Schema.
func WithoutCreate() Option { return func(o *options) { o.create = false } }

// WithLogger sets the logger of a driver that [Open] makes: it logs warnings and notices of the database, and
// connections that failed. Without it nothing is logged, since errors are returned. New refuses it: a pool logs as its
// own configuration says (OnNotice, Tracer).
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

func newOptions(opts []Option) (options, *wire, error) {
	o := options{
		prefix: DefaultPrefix, schema: DefaultSchema, liveness: DefaultLiveness,
		listen: true, create: true, listenIdle: listenIdle, sweepEvery: sweepEvery,
	}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if err := sqlqueue.CheckLiveness(o.liveness); err != nil {
		return o, nil, err
	}
	w, err := newWire(current, o.schema, o.prefix)
	return o, w, err
}

// New makes a driver over a pool, which it does not close. It does not reach the database.
func New(pool *pgxpool.Pool, opts ...Option) (*Driver, error) {
	if pool == nil {
		return nil, errors.New("postgres: New: the pool is nil")
	}
	o, w, err := newOptions(opts)
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
		opts: o, w: w, pool: pool, mode: pool.Config().ConnConfig.DefaultQueryExecMode,
		creating: make(chan struct{}, 1), registering: make(chan struct{}, 1), spare: make(chan spare, 1),
		waiters: newWaiters(o.liveness),
	}
	d.spare <- spare{}
	d.ctx, d.stop = context.WithCancel(context.Background())
	return d
}

// Schema returns the SQL that creates what the driver needs, or upgrades what an earlier version has created. It is for
// programs that must not do that themselves (WithoutCreate). It has no transaction control of its own: run it in one
// transaction, as psql -1, migration tools and an Exec without arguments do. It may be run again: that changes nothing
// and interrupts no program. The package comment lists the rights that the program's user needs.
func Schema(opts ...Option) (string, error) {
	_, w, err := newOptions(opts)
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

// slack allows for timers, a poll and a commit.
const slack = 500 * time.Millisecond

// Bounds implements driver.Bounder. Waiters expire some time after their last heartbeat, and the next check of the
// queue removes them.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{
		MinTTL: sqlqueue.MinTTL, Crash: ttl + slack,
		Liveness: d.opts.liveness + d.heartbeatEvery() + slack,
	}
}

// NotifyLoss implements driver.LossNotifier.
func (d *Driver) NotifyLoss(notify func(driver.Hold, error)) { d.notifyLoss = notify }

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	return repeat(ctx, d, true, func() ([]driver.Ticket, error) {
		return query(ctx, d, sending{looks: true}, rowInspected, d.w.inspect, []byte(name))
	})
}

func rowInspected(row pgx.CollectableRow) (t driver.Ticket, err error) {
	var token, permits, since, left int64
	var owner, note []byte
	err = row.Scan(&t.ID, &token, &owner, &note, &t.Shared, &permits, &t.Held, &since, &left)
	t.Token = uint64(token) //nolint:gosec // the schema has them positive
	t.Owner, t.Note = string(owner), string(note)
	if permits != anyNumber {
		t.Limit = int(permits)
	}
	t.Since = time.UnixMicro(since)
	t.Remaining = time.Duration(left) * time.Microsecond
	return t, err
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	return repeat(ctx, d, true, func() ([]string, error) {
		return query(ctx, d, sending{looks: true}, func(row pgx.CollectableRow) (string, error) {
			name, err := pgx.RowTo[[]byte](row)
			return string(name), err
		}, d.w.list)
	})
}

// Ping implements driver.Pinger. It asks for every right that acquiring and releasing need, and changes nothing. An
// error names the rights that are missing.
func (d *Driver) Ping(ctx context.Context) error {
	_, err := repeat(ctx, d, true, func() (struct{}, error) { return struct{}{}, d.checkRights(ctx, d.w.ping) })
	if code(err) == codeDenied {
		if all := d.checkRights(ctx, d.w.rights); code(all) == codeDenied {
			err = all
		}
	}
	return err
}

// checkRights sends a query for missing rights, and returns an error that names them.
func (d *Driver) checkRights(ctx context.Context, sql string) error {
	lacks, err := query(ctx, d, sending{}, pgx.RowTo[*string], sql)
	if err == nil && lacks[0] != nil && *lacks[0] != "" {
		return &pgconn.PgError{
			Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: codeDenied,
			Message: "permission denied: the role needs " + *lacks[0],
		}
	}
	return err
}

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (version string, err error) {
	err = d.with(ctx, false, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SHOW server_version", pgx.QueryExecModeSimpleProtocol).Scan(&version)
	})
	if err != nil {
		return "", d.explain(ctx, err)
	}
	version, _, _ = strings.Cut(version, " ") // (Debian 15.14-1.pgdg12+1)
	return "PostgreSQL " + version, nil
}

// start starts a background task, unless running says that it runs, or the driver is closed.
func (d *Driver) start(running *bool, task func()) {
	d.waiters.mu.Lock()
	defer d.waiters.mu.Unlock()
	if !*running && d.ctx.Err() == nil {
		*running = true
		d.work.Go(task)
	}
}

// closeBound is how long Close waits for a database that does not answer.
const closeBound = 100 * time.Millisecond

// Close implements driver.Driver.
func (d *Driver) Close() error {
	d.closed.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeBound)
		defer cancel()
		d.waiters.mu.Lock() // see start
		d.stop()
		d.waiters.mu.Unlock()
		within(ctx, d.work.Wait)
		if process, known := d.waiters.leave(); known {
			d.leave(ctx, process)
		}
		d.closeSpare()
		if d.owned {
			within(ctx, d.pool.Close) // waits for requests that are under way: they end with their contexts
		}
	})
	return nil
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

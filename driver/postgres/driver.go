package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
	"github.com/lockerproject/locker/driver/internal/setup"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Driver takes tickets in a PostgreSQL database. See the package comment.
type Driver struct {
	*sqlqueue.Engine
	s     *store
	owned bool // the pool is ours to close
}

var (
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
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
	async          bool
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

// WithAsyncDurability makes the requests that take, renew and release locks return before their commits are on the disk
// (synchronous_commit=off, for their transactions alone). A crash of the database may then lose the last of them, so that
// two programs hold one lock: see "What loses a lock" in the package comment.
func WithAsyncDurability() Option { return func(o *options) { o.async = true } }

// WithLogger sets the logger of a driver that [Open] makes: it logs warnings and notices of the database, and
// connections that failed. Without it nothing is logged, since errors are returned. New refuses it: a pool logs as its
// own configuration says (OnNotice, Tracer).
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.logger = l } }

func newOptions(opts []Option) (options, *wire, error) {
	o := options{
		prefix: DefaultPrefix, schema: DefaultSchema, liveness: DefaultLiveness,
		listen: true, create: true,
	}
	setup.Apply(&o, opts)
	if err := sqlqueue.CheckLiveness(o.liveness); err != nil {
		return o, nil, err
	}
	w, err := newWire(current, o.schema, o.prefix, o.async)
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
	s := &store{
		opts: o, w: w, pool: pool, mode: pool.Config().ConnConfig.DefaultQueryExecMode,
	}
	s.conns = s.pooled()
	d := &Driver{s: s}
	d.build(sqlqueue.Options{})
	return d
}

// build makes the engine. The options are for tests.
func (d *Driver) build(o sqlqueue.Options) {
	o.Store, o.Schema, o.Liveness = d.s, d.s.described(), d.s.opts.liveness
	if d.s.opts.listen {
		o.Notifier = d.s
	}
	d.Engine = sqlqueue.New(o)
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
	c := d.s.pool.Config().ConnConfig
	return fmt.Sprintf("postgres %s:%d/%s", c.Host, c.Port, c.Database)
}

// Ping implements driver.Pinger. It asks for every right that acquiring and releasing need, and changes nothing. An
// error names the rights that are missing.
func (d *Driver) Ping(ctx context.Context) error {
	err := sqlqueue.Do(ctx, d.Engine, sqlqueue.Creates, func() error { return d.s.checkRights(ctx, d.s.w.ping) })
	if code(err) == codeDenied {
		if all := d.s.checkRights(ctx, d.s.w.rights); code(all) == codeDenied {
			err = all
		}
	}
	return err
}

// checkRights sends a query for missing rights, and returns an error that names them.
func (s *store) checkRights(ctx context.Context, sql string) error {
	lacks, err := query(ctx, s, sending{}, pgx.RowTo[*string], sql)
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
	err = sqlqueue.Do(ctx, d.Engine, sqlqueue.Asks, func() error {
		return d.s.with(ctx, func(c *pgx.Conn) error {
			return c.QueryRow(ctx, "SHOW server_version", pgx.QueryExecModeSimpleProtocol).Scan(&version)
		})
	})
	if err != nil {
		return "", err
	}
	version, _, _ = strings.Cut(version, " ") // (Debian 15.14-1.pgdg12+1)
	return "PostgreSQL " + version, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	begun := time.Now()
	_ = d.Engine.Close()
	if d.owned {
		life.Ending(d.s.pool.Close)(sqlqueue.CloseBound - time.Since(begun)) // waits for requests that are under way: they end with their contexts
	}
	return nil
}

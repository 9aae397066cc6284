package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/setup"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Defaults and bounds.
const (
	DefaultPrefix   = "locker"
	DefaultLiveness = sqlqueue.DefaultLiveness
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

func newOptions(opts []Option) (options, *wire, error) {
	o := options{prefix: DefaultPrefix, liveness: DefaultLiveness, create: true}
	setup.Apply(&o, opts)
	if err := sqlqueue.CheckLiveness(o.liveness); err != nil {
		return o, nil, err
	}
	w, err := newWire(current, o.prefix)
	return o, w, err
}

// engine is what a Driver has of the engine. It is no driver.LossNotifier: a process is woken, and not told why.
type engine interface {
	driver.Driver
	driver.BatchRenewer
	driver.Lister
	driver.Breaker
	driver.Bounder
	driver.Shortener
}

// Driver takes tickets in a MySQL or MariaDB database. See the package comment.
type Driver struct {
	engine
	e     *sqlqueue.Engine
	s     *store
	owned bool               // the database is ours to close
	stop  context.CancelFunc // ends the requests that are under way
}

var (
	_ driver.Pinger          = (*Driver)(nil)
	_ driver.ServerVersioner = (*Driver)(nil)
	_ fmt.Stringer           = (*Driver)(nil)
)

// New returns a driver for db, which it neither contacts nor closes. db has to be of github.com/go-sql-driver/mysql,
// with a DSN that names a database, and with autocommit on; the driver sets nothing in its sessions. It raises the limit of db
// for a while at a time: do not change that while the driver is open.
func New(db *sql.DB, opts ...Option) (*Driver, error) {
	if db == nil {
		return nil, errors.New("mysql: New: the database is nil")
	}
	o, w, err := newOptions(opts)
	if err != nil {
		return nil, fmt.Errorf("mysql: New: %w", err)
	}
	if o.logger != nil {
		return nil, errors.New("mysql: New: WithLogger is for Open: the database logs as its DSN says")
	}
	return newDriver(db, o, w), nil
}

func newDriver(db *sql.DB, o options, w *wire) *Driver {
	s := &store{opts: o, w: w, db: db}
	s.conns = s.pooled()
	s.listening.Store(&listening{})
	d := &Driver{s: s}
	s.closed, d.stop = context.WithCancel(context.Background())
	d.build(sqlqueue.Options{})
	return d
}

// build makes the engine. The options are for tests.
func (d *Driver) build(o sqlqueue.Options) {
	o.Store, o.Notifier, o.Schema, o.Liveness, o.ListenToWait = d.s, d.s, d.s.described(), d.s.opts.liveness, true
	d.e = sqlqueue.New(o)
	d.engine = d.e
}

// String names the store: its address if the driver was opened by URL, and the prefix if it is not
// the default.
func (d *Driver) String() string {
	s := "mysql"
	if d.s.opts.address != "" {
		s += " " + d.s.opts.address
	}
	if d.s.opts.prefix != DefaultPrefix {
		s += " " + d.s.opts.prefix
	}
	return s
}

// Ping implements driver.Pinger: it sends statements that change nothing and need all
// rights that locks need, and all procedures. It creates the tables if they are missing.
func (d *Driver) Ping(ctx context.Context) error {
	v := valuesOf("", "").with(values{"process": 0, "token": 0, "mark": true})
	for _, statement := range []string{
		"clock", "ping_slots", "ping_tickets", "ping_delete", "ping_processes", "ping_delete_processes", "ping_tx", "ping_delete_tx",
		"mine", "inspect", "wake_call", "remove_call", "advance_call", "ping_take",
	} {
		err := sqlqueue.Do(ctx, d.e, sqlqueue.Creates, func() error {
			_, _, err := d.s.exec(ctx, statement, v)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	found, err := sqlqueue.Repeat(ctx, d.e, sqlqueue.Asks, func() ([]string, error) {
		return query(ctx, d.s, "SELECT VERSION()", scanOne[string])
	})
	if err != nil {
		return "", err
	}
	name, text := "MySQL ", found[0]
	if strings.Contains(text, "MariaDB") {
		name = "MariaDB "
	}
	text, _, _ = strings.Cut(text, "-") // -MariaDB-0+deb12u1
	return name + text, nil
}

// Close implements driver.Driver.
func (d *Driver) Close() error {
	err := d.engine.Close()
	d.stop()
	if d.owned {
		err = d.s.db.Close()
	}
	return err
}

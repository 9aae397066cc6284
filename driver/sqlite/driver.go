package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/setup"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/machine"
)

// DefaultBusyTimeout is how long a request waits for other processes to end their transactions, unless
// WithBusyTimeout sets another time.
const DefaultBusyTimeout = 5 * time.Second

const (
	liveness        = 3200 * time.Millisecond // of a process that waits, after a heartbeat
	pollWithoutPipe = 20 * time.Millisecond
	sweepInterval   = 20 * time.Second
)

// Option changes how New opens a file.
type Option func(*options)

type options struct {
	create    bool
	busy      time.Duration // how long to wait for other processes' transactions
	sweep     time.Duration
	intercept interceptor

	clock   func() int64
	connect func(dsn string) (*sql.DB, error)
	pipe    func(db, path string) (io.ReadWriteCloser, error)
	notify  func(path, line string)
}

// on has a driver run on another machine than this one: that of the simulation.
func on(m machine.Machine) Option {
	return func(o *options) {
		o.clock, o.notify = m.Clock, m.Notify
		o.connect = func(dsn string) (*sql.DB, error) { return sql.OpenDB(m.Connector(dsn)), nil }
		o.pipe = func(_, path string) (io.ReadWriteCloser, error) { return m.Pipe(path) }
	}
}

// WithoutCreate makes New fail if the file, or the tables in it, do not exist.
func WithoutCreate() Option { return func(o *options) { o.create = false } }

// WithBusyTimeout sets how long a request waits for other processes to end their transactions before it fails;
// the default is 5 s. Transactions take less than a millisecond, unless the disk hangs or a process is stopped
// inside one.
func WithBusyTimeout(d time.Duration) Option { return func(o *options) { o.busy = d } }

// Driver keeps tickets in a database file. See the package comment.
type Driver struct {
	*sqlqueue.Engine
	s      *store
	closed sync.Once
}

var (
	_ driver.Pinger = (*Driver)(nil)
	_ fmt.Stringer  = (*Driver)(nil)
)

// New opens the database file at path. If the file or its folder does not exist, the first Acquire makes it. Several
// drivers may use one file, in one process or in many.
func New(path string, opts ...Option) (*Driver, error) {
	o := options{
		create: true, busy: DefaultBusyTimeout, sweep: sweepInterval, intercept: direct,
		clock: clock, connect: connect, pipe: openPipe, notify: notify,
	}
	setup.Apply(&o, opts)
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
	d := &Driver{s: s}
	d.Engine = sqlqueue.New(sqlqueue.Options{
		Store: s, Notifier: s, Liveness: liveness, LongestPoll: pollWithoutPipe, SweepEvery: o.sweep, ListenFirst: true,
		Schema: sqlqueue.Schema{Create: o.create},
	})
	s.closing = sqlqueue.Closing(d.Engine)
	go s.serve()
	return d, nil
}

// String names the store.
func (d *Driver) String() string { return "sqlite" }

// Ping implements driver.Pinger. It writes, as every acquisition does. Where there is no database yet, it checks whether
// one may be made.
func (d *Driver) Ping(ctx context.Context) error {
	_, err := run(ctx, d.s, pings, func(t *tx) (struct{}, error) { return struct{}{}, t.exec(sqlPing) })
	if errors.Is(err, errAbsent) {
		err = d.s.mayMake()
	}
	return err
}

// Close implements driver.Driver. Waiting tickets that the core has not released expire.
func (d *Driver) Close() error {
	d.closed.Do(func() {
		_ = d.Engine.Close()
		d.s.close(sqlqueue.CloseBound / 4) // beside what the engine has taken, of the 150 ms that it may take
	})
	return nil
}

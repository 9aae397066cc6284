package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
)

// Sweep sweeps once.
func (d *Driver) Sweep(ctx context.Context) (busy int64, err error) { return d.sweep(ctx) }

// SweepInTurn sweeps, unless another process does or has done so. It returns when a sweep is due again.
func (d *Driver) SweepInTurn(ctx context.Context) time.Duration { return d.sweepInTurn(ctx) }

// Repeat calls f as the driver calls a request that may be sent twice.
func (d *Driver) Repeat(ctx context.Context, f func() error) error {
	_, err := repeat(ctx, d, true, func() (struct{}, error) { return struct{}{}, f() })
	return err
}

// SweepEvery changes the interval of a driver that was not used yet.
func (d *Driver) SweepEvery(every time.Duration) { d.opts.sweepEvery = every }

// SweepPeriod is the longest time from one sweep of a driver to the next.
func (d *Driver) SweepPeriod() time.Duration { return d.opts.sweepEvery + d.opts.sweepEvery/10 }

// ListenFor changes how long a driver that was not used yet goes on listening.
func (d *Driver) ListenFor(idle time.Duration) { d.opts.listenIdle = idle }

// Hears reports whether notifications arrive.
func (d *Driver) Hears() bool {
	d.waiters.mu.Lock()
	defer d.waiters.mu.Unlock()
	return d.waiters.receiving
}

// Code is the SQLSTATE of an error.
func Code(err error) string { return code(err) }

// Create is what a driver does when a statement did not find the tables.
func (d *Driver) Create(ctx context.Context, missing error) error {
	d.used.Store(false) // as that of a program that has just started
	return d.createSchema(ctx, missing)
}

// CreateInUse is what a driver does when a statement did not find the tables, and another has
// found them since.
func (d *Driver) CreateInUse(ctx context.Context, missing error) error {
	d.used.Store(true)
	return d.createSchema(ctx, missing)
}

// ConnConfig is how a driver connects.
func ConnConfig(d driver.Driver) *pgx.ConnConfig { return d.(*Driver).pool.Config().ConnConfig }

// Version is the suffix of the functions' names.
var Version = current.suffix()

// An Edition is a version of the schema other than this package's.
type Edition = edition

// NewEdition is an edition of a version, with the hash of a text.
func NewEdition(version, hash string) Edition { return edition{version, hash} }

// Current is the edition of this package.
var Current = current

// Become changes the edition of a driver that was not used yet.
func (d *Driver) Become(e Edition) {
	d.w, _ = newWire(e, d.opts.schema, d.opts.prefix) // both were checked
}

// SchemaText is what a driver would create.
func (d *Driver) SchemaText() string { return d.w.schema }

// MaxConns is the size of the pool of a driver.
func MaxConns(d *Driver) int { return int(d.pool.Config().MaxConns) }

// Queue adds a waiter for a ticket, as if the database had queued it. It returns the ID of the process, and a
// function that returns the error with which the wait has ended, or nil.
func (d *Driver) Queue(r driver.Request) (process int64, ended func() error) {
	w := d.waiters.add(r)
	d.waiters.queued(w, time.Minute)
	return w.process, func() error {
		select {
		case o := <-w.outcome:
			return o.err
		default:
			return nil
		}
	}
}

// Register registers the process, as a request does if the answer was that it is not registered.
func (d *Driver) Register(ctx context.Context) error {
	return d.register(ctx, d.waiters.current(), time.Now())
}

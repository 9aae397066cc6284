package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Sweep sweeps once.
func (d *Driver) Sweep(ctx context.Context) (busy int64, err error) {
	return sqlqueue.Sweep(ctx, d.Engine)
}

// SweepInTurn sweeps, unless another process does or has done so. It returns when a sweep is due again.
func (d *Driver) SweepInTurn(context.Context) time.Duration { return sqlqueue.SweepInTurn(d.Engine) }

// Repeat calls f as the driver calls a request that may be sent twice.
func (d *Driver) Repeat(ctx context.Context, f func() error) error {
	return sqlqueue.Do(ctx, d.Engine, sqlqueue.Twice, f)
}

// SweepEvery changes the interval of a driver that was not used yet.
func (d *Driver) SweepEvery(every time.Duration) { d.build(sqlqueue.Options{SweepEvery: every}) }

// SweepPeriod is the longest time from one sweep of a driver to the next, by default.
func (d *Driver) SweepPeriod() time.Duration { return sqlqueue.SweepEvery + sqlqueue.SweepEvery/10 }

// ListenFor changes how long a driver that was not used yet goes on listening.
func (d *Driver) ListenFor(idle time.Duration) { d.build(sqlqueue.Options{ListenFor: idle}) }

// Hears reports whether notifications arrive.
func (d *Driver) Hears() bool { return sqlqueue.Receiving(d.Engine) }

// Code is the SQLSTATE of an error.
func Code(err error) string { return code(err) }

// Create is what a driver does when a statement did not find the tables.
func (d *Driver) Create(ctx context.Context, missing error) error {
	_, err := sqlqueue.MakeTables(ctx, d.Engine, missing, true, false) // as that of a program that has just started
	return err
}

// CreateInUse is what a driver does when a statement did not find the tables, and another has
// found them since.
func (d *Driver) CreateInUse(ctx context.Context, missing error) error {
	_, err := sqlqueue.MakeTables(ctx, d.Engine, missing, true, true)
	return err
}

// ConnConfig is how a driver connects.
func ConnConfig(d driver.Driver) *pgx.ConnConfig { return d.(*Driver).s.pool.Config().ConnConfig }

// Version is the suffix of the functions' names.
var Version = current.Name()

// An Edition is a version of the schema other than this package's.
type Edition = sqlqueue.Edition

// NewEdition is an edition of a version, with the hash of a text.
func NewEdition(version, hash string) Edition { return Edition{Version: version, Hash: hash} }

// Current is the edition of this package.
var Current = current

// Become changes the edition of a driver that was not used yet.
func (d *Driver) Become(e Edition) {
	d.s.w, _ = newWire(e, d.s.opts.schema, d.s.opts.prefix, d.s.opts.async) // both were checked
	d.build(sqlqueue.Options{})
}

// SchemaText is what a driver would create.
func (d *Driver) SchemaText() string { return d.s.w.schema }

// MaxConns is the size of the pool of a driver.
func MaxConns(d *Driver) int { return int(d.s.pool.Config().MaxConns) }

// Store is what the engine works on.
func (d *Driver) Store() sqlqueue.Store { return d.s }

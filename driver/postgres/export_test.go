package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
)

// Sweep is what a driver does now and then.
func (d *Driver) Sweep(ctx context.Context) (busy int64, err error) { return d.sweep(ctx) }

// SweepEvery changes the interval of a driver that was not used yet.
func (d *Driver) SweepEvery(every time.Duration) { d.opts.sweepEvery = every }

// Code is the SQLSTATE of an error.
func Code(err error) string { return code(err) }

// Create is what a driver does when a statement failed for want of the schema.
func (d *Driver) Create(ctx context.Context, missing error) error {
	d.used.Store(false) // as that of a program that has just started
	return d.createSchema(ctx, missing)
}

// ConnConfig is what a driver connects by.
func ConnConfig(d driver.Driver) *pgx.ConnConfig { return d.(*Driver).pool.Config().ConnConfig }

// Version is the suffix of the functions' names.
const Version = version

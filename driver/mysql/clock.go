package mysql

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A statement that takes a ticket carries the time until which its sender waits
// for the answer, told by the database's clock: a request that the network held
// back for longer does nothing when it arrives. Nothing else rests on this
// reading of the clock, and no exclusion does.
type clock struct {
	ahead atomic.Pointer[time.Duration] // of the database before this process; nil: not known
}

// now is the database's time, as well as it is known.
func (d *Driver) now(ctx context.Context) (time.Time, error) {
	if ahead := d.clock.ahead.Load(); ahead != nil {
		return time.Now().Add(*ahead), nil
	}
	var micros int64
	began := time.Now()
	err := d.query(ctx, d.w.render("clock", values{}), func(rows *sql.Rows) error { return rows.Scan(&micros) })
	if err != nil {
		return time.Time{}, err
	}
	there := time.UnixMicro(micros)
	ahead := there.Sub(began)
	d.clock.ahead.Store(&ahead)
	return there, nil
}

// valuesOf are the values of a request that is about to be sent.
func (d *Driver) valuesOf(ctx context.Context, r driver.Request) (values, error) {
	now, err := d.now(ctx)
	left := takeBound
	if deadline, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(deadline))
	}
	return values{
		name: r.Name, id: r.ID, owner: r.Owner, note: r.Note,
		shared: r.Shared, permits: r.Limit, ttl: r.TTL, life: d.opts.liveness,
		deadline: now.Add(left),
	}, err
}

// restart makes good what keeps a ticket from being taken at all: a clock that was
// set, or slots that are not there.
func (d *Driver) restart(ctx context.Context, try int, err error) error {
	d.clock.ahead.Store(nil)
	if try == 0 {
		return nil
	}
	return d.migrate(ctx, err)
}

package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/internal/retry"
)

// A process that uses a queue removes expired tickets that are in its way. The others (of names that nobody uses again,
// and of waiters after a live holder) are removed in the background, by each process that has used the driver, until it
// closes the driver.
const (
	sweepEvery = 45 * time.Second // and up to a tenth longer, so that processes do not sweep at once
	sweepMost  = 100              // queues in one statement
	sweepBound = 5 * time.Second

	// If a row is in use when a sweep finds it, or a passing error occurs, the sweep is repeated: D18 allows a minute,
	// so the next regular sweep may be too late. A guarded transaction may last for hours.
	sweepAgain = 2 * time.Second
	sweepTries = 3

	// One in so many processes sweeps as soon as it has a ticket. If all waited first, programs that run for moments
	// would never sweep, and each may leave an expired lease.
	sweepOdds = 10
)

// sweepOnAndOff is the background task, which starts with the first request for a ticket that is answered.
func (d *Driver) sweepOnAndOff() {
	if rand.N(sweepOdds) == 0 {
		d.sweepUntilDone(d.ctx)
	}
	for retry.Sleep(d.ctx, d.opts.sweepEvery+rand.N(d.opts.sweepEvery/10), nil) {
		d.sweepUntilDone(d.ctx)
	}
}

// sweepUntilDone sweeps again soon if something could not be removed. After some tries it is left to the next sweep.
func (d *Driver) sweepUntilDone(ctx context.Context) {
	for range sweepTries {
		if busy, err := d.sweep(ctx); err == nil && busy == 0 {
			return
		}
		if !retry.Sleep(ctx, sweepAgain, nil) {
			return
		}
	}
}

// swept is the answer to a sweep of some queues.
type swept struct {
	Last []byte // name; nil: there are no more
	Busy int64  // queues in which something could not be removed now
}

// sweep removes expired tickets, from some queues with each statement. After Close it has closeBound to finish a
// statement.
func (d *Driver) sweep(ctx context.Context) (busy int64, err error) {
	until, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepBound)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeBound, cancel) })
	defer stop()
	for last := []byte{}; last != nil && ctx.Err() == nil; {
		rows, err := query(until, d, sending{patient: true}, pgx.RowToStructByPos[swept], d.w.sweep, last, sweepMost)
		if err != nil {
			return busy, err
		}
		last = rows[0].Last
		busy += rows[0].Busy
	}
	return busy, nil
}

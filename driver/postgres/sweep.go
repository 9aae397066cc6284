package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/internal/retry"
)

// What crashed processes leave in a queue is removed by whoever uses the queue, as far as it is in the way. The rest
// (names that nobody uses again, waiters behind a live holder) is removed in the background, by each process that has
// used the driver, until it closes the driver.
const (
	sweepEvery = 45 * time.Second // and up to a tenth longer, so that processes do not sweep at once
	sweepMost  = 100              // queues in one statement
	sweepBound = 5 * time.Second

	// What is in use when a sweep finds it, or an error that passes, must not put off the removal until the
	// next sweep: D18 gives a minute. A guarded transaction may last for hours.
	sweepAgain = 2 * time.Second
	sweepTries = 3

	// One in so many processes sweeps as soon as it has a ticket. Of programs that run for moments, none would
	// ever sweep if all waited for a minute, and each may leave a lease that nobody ends.
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

// sweep removes expired tickets, some queues with each statement. Close, which may be called at any time, leaves it a moment.
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

package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// A process that uses a queue removes expired tickets that are in its way. The others (of names that nobody uses again,
// and of waiters after a live holder) are removed in the background, by one of the processes that have used the driver and
// not closed it. A sweep reads all tickets, so it must not be done once for each process.
const (
	sweepEvery = 45 * time.Second // and up to a tenth longer, so that processes do not sweep at once
	sweepMost  = 100              // queues in one statement
	sweepBound = 5 * time.Second
	sweepTurn  = 10 * time.Second // by then another process sweeps, if that whose turn it is has crashed

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
		d.sweepUntilDone(d.ctx) // not in turn: a program that ends at once might take the turn, and not sweep
	}
	for wait := d.opts.sweepEvery; retry.Sleep(d.ctx, wait+rand.N(d.opts.sweepEvery/10), nil); {
		wait = d.sweepInTurn(d.ctx)
	}
}

// sweepInTurn sweeps, unless another process does or has done so. It returns when a sweep is due again.
func (d *Driver) sweepInTurn(ctx context.Context) time.Duration {
	switch left, err := d.sweeper(ctx, sweepTurn, false); {
	case err != nil:
		return d.opts.sweepEvery
	case left > 0:
		return min(left, d.opts.sweepEvery)
	}
	if begun := time.Now(); d.sweepUntilDone(ctx) {
		_, _ = d.sweeper(ctx, max(0, d.opts.sweepEvery-time.Since(begun)), true) // else another sweeps soon
	}
	return d.opts.sweepEvery
}

// sweeper asks for the turn to sweep, or gives it up. It returns how long others have it.
func (d *Driver) sweeper(ctx context.Context, life time.Duration, done bool) (left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepBound)
	defer cancel()
	micros, err := query(ctx, d, sending{patient: true}, pgx.RowTo[int64], d.w.sweeper, sqlqueue.Micros(life), done)
	if err != nil {
		return 0, err
	}
	return time.Duration(micros[0]) * time.Microsecond, nil
}

// sweepUntilDone sweeps again soon if something could not be removed. After some tries it is left to the next sweep. It
// reports false if no sweep has got to the end.
func (d *Driver) sweepUntilDone(ctx context.Context) (swept bool) {
	for range sweepTries {
		busy, err := d.sweep(ctx)
		swept = swept || err == nil
		if err == nil && busy == 0 || !retry.Sleep(ctx, sweepAgain, nil) {
			break
		}
	}
	return swept
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

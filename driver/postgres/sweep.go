package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// What crashed processes leave on a name goes when somebody uses that name, as far as
// it is in the way. The rest (names that nobody uses again, waiters behind a live
// holder) each process that has used the driver sweeps in the background, until it
// closes the driver.
const (
	sweepEvery = 45 * time.Second // and up to a tenth longer, so that processes do not sweep at once
	sweepMost  = 100              // queues with each statement
	sweepBound = 5 * time.Second

	// What is in use when a sweep comes by, or an error that passes, must not put the
	// removal off until the next one: D18 gives a minute. A guarded transaction may last for hours.
	sweepAgain = 2 * time.Second
	sweepTries = 3

	// One in so many processes sweeps as soon as it has a ticket. Of programs that
	// live for moments, none would ever sweep if all waited for a minute, and each
	// may leave a lease that nobody ends.
	sweepOdds = 10
)

// sweepLater starts the background task, with the first request for a ticket that is answered.
func (d *Driver) sweepLater() {
	if d.sweeping.Load() || !d.sweeping.CompareAndSwap(false, true) {
		return
	}
	d.line.mu.Lock()
	defer d.line.mu.Unlock()
	if d.ctx.Err() != nil {
		return
	}
	d.work.Go(func() {
		if rand.N(sweepOdds) == 0 {
			d.sweepUntilDone(d.ctx)
		}
		for d.pause(d.ctx, d.opts.sweepEvery+rand.N(d.opts.sweepEvery/10)) {
			d.sweepUntilDone(d.ctx)
		}
	})
}

// sweepUntilDone sweeps again soon what could not be removed; after some tries it is left
// to the next sweep.
func (d *Driver) sweepUntilDone(ctx context.Context) {
	for range sweepTries {
		if busy, err := d.sweep(ctx); err == nil && busy == 0 {
			return
		}
		if !d.pause(ctx, sweepAgain) {
			return
		}
	}
}

// sweep removes expired tickets, some queues with each statement. In busy queues
// something could not be removed now. Close, which may come at once, leaves it a moment.
func (d *Driver) sweep(ctx context.Context) (busy int64, err error) {
	until, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepBound)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeBound, cancel) })
	defer stop()
	for last := []byte{}; last != nil && err == nil && ctx.Err() == nil; {
		var n int64
		err = d.query(until, false, nil, func(r pgx.Rows) error { return r.Scan(&last, &n) }, d.w.sweep, last, sweepMost)
		busy += n
	}
	return busy, err
}

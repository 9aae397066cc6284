package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// What crashed holders leave on a name goes when somebody uses that name. For
// names that nobody uses again, each process that has taken a ticket sweeps in the
// background, until it closes the driver.
const (
	sweepEvery = 45 * time.Second // and up to a tenth longer, so that processes do not sweep at once
	sweepMost  = 100              // queues at once
	sweepBound = 10 * time.Second

	// One in so many processes sweeps as soon as it has a ticket. Of programs that
	// live for moments, none would ever sweep if all waited for a minute, and each
	// may leave a lease that nobody ends.
	sweepOdds = 10
)

// sweepLater starts the background task with the first ticket.
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
			d.sweep(d.ctx)
		}
		for d.pause(d.ctx, sweepEvery+rand.N(sweepEvery/10)) {
			d.sweep(d.ctx)
		}
	})
}

// sweep removes what the dead left, some queues with each statement; what it cannot
// do now it does next time. Close, which may come at once, leaves it a moment.
func (d *Driver) sweep(ctx context.Context) {
	until, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepBound)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeBound, cancel) })
	defer stop()
	for more := int64(1); more > 0 && ctx.Err() == nil; {
		more = 0
		_ = d.query(until, false, nil, func(r pgx.Rows) error { return r.Scan(&more) }, d.w.sweep, sweepMost)
	}
}

package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// What crashed holders leave on a name goes when somebody uses that name. For
// names that nobody uses again, each process sweeps now and then, while it uses
// the database anyway.
const (
	sweepEvery = time.Minute
	sweepMost  = 100 // lines at once
	sweepBound = 10 * time.Second
	sweepLast  = 500 * time.Millisecond // after Close

	// One in so many processes sweeps as soon as it has a ticket. Of programs that
	// live for moments, none would ever sweep if all waited for a minute, and each
	// may leave a lease that nobody ends.
	sweepOdds = 10
)

func (d *Driver) maybeSweep() {
	last, now := d.swept.Load(), time.Now().Unix()
	if now-last < int64(sweepEvery/time.Second) || !d.swept.CompareAndSwap(last, now) {
		return
	}
	if last == 0 && rand.N(sweepOdds) > 0 {
		return
	}
	d.line.mu.Lock()
	defer d.line.mu.Unlock()
	if d.ctx.Err() != nil {
		return
	}
	d.work.Go(func() { d.sweep(d.ctx) })
}

// sweep removes what the dead left, some lines with each statement; what it cannot
// do now it does next time. Close, which may come at once, leaves it a moment.
func (d *Driver) sweep(ctx context.Context) {
	until, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepBound)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(sweepLast, cancel) })
	defer stop()
	for more := int64(1); more > 0 && ctx.Err() == nil; {
		more = 0
		_ = d.query(until, false, nil, func(r pgx.Rows) error { return r.Scan(&more) }, d.w.sweep, sweepMost)
	}
}

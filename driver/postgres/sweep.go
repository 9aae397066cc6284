package postgres

import (
	"context"
	"time"
)

// What crashed holders leave on a name goes when somebody uses that name. For
// names that nobody uses again, each process sweeps now and then, while it uses
// the database anyway.
const (
	sweepEvery = time.Minute
	sweepMost  = 100 // lines at once
	sweepBound = 10 * time.Second
)

func (d *Driver) maybeSweep() {
	last, now := d.swept.Load(), time.Now().Unix()
	if now-last < int64(sweepEvery/time.Second) || !d.swept.CompareAndSwap(last, now) || last == 0 {
		return // not at once: a short-lived program need not
	}
	d.line.mu.Lock()
	defer d.line.mu.Unlock()
	if d.ctx.Err() != nil {
		return
	}
	d.work.Go(func() { d.sweep(d.ctx) })
}

// sweep removes what the dead left; what it cannot do now it does next time.
func (d *Driver) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sweepBound)
	defer cancel()
	_ = d.exec(ctx, d.w.sweep, sweepMost)
}

package mysql

import (
	"context"
	"database/sql"
	"slices"
	"time"
)

// A driver that was used once looks for what others have left, as long as it is open:
// tickets of processes that died, gates that nobody closed, rows of AcquireTx. So what is left is removed within
// a minute after it expired, whoever is there. It does so the sooner when it was used since, or has rows
// of its own to remove.
const (
	sweepEvery = 15 * time.Second
	sweepRest  = 45 * time.Second
)

// closeBound is how long Close waits for the database, to leave it tidy.
const closeBound = 100 * time.Millisecond

// sweepLater sweeps in the background in a while, unless that is planned.
func (d *Driver) sweepLater() {
	if d.sweeping.Load() || d.sweeping.Swap(true) {
		return
	}
	d.sweepIn(sweepEvery)
}

// sweepIn plans the next sweep.
func (d *Driver) sweepIn(pause time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ctx.Err() != nil {
		return
	}
	if d.broom != nil {
		d.broom.Stop()
	}
	d.broom = time.AfterFunc(pause, func() {
		d.begin(func() {
			d.sweeping.Store(false)
			ctx, cancel := context.WithTimeout(d.ctx, takeBound)
			defer cancel()
			if more, err := d.sweep(ctx); more || err != nil { // the next one does what this one could not
				d.sweepLater()
			} else if !d.sweeping.Load() {
				d.sweepIn(sweepRest)
			}
		})
	})
}

// sweep reports whether this process will have more to remove.
func (d *Driver) sweep(ctx context.Context) (more bool, err error) {
	kept, more := d.keeper.forget(keptLife)
	if err := d.forget(ctx, kept, keptLife); err != nil {
		return true, err
	}
	return more, d.sweepOthers(ctx)
}

// tidy removes the rows that are kept when the driver is closed; where the database
// cannot be reached, they are left to others' sweeps.
func (d *Driver) tidy() {
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	kept, _ := d.keeper.forget(0)
	_ = d.forget(ctx, kept, 0)
}

// sweepOthers goes on while batches are full, and not of what could not be removed.
func (d *Driver) sweepOthers(ctx context.Context) error {
	for _, step := range []func(context.Context) ([]string, error){d.sweepKept, d.sweepStale, d.sweepTx} {
		var last []string
		for {
			some, err := step(ctx)
			if err != nil {
				return err
			}
			if len(some) < batch || slices.Equal(some, last) {
				break
			}
			last = some
		}
	}
	return nil
}

// sweepKept removes a batch of rows that were kept by processes that died.
func (d *Driver) sweepKept(ctx context.Context) ([]string, error) {
	kept, err := d.names(ctx, "kept")
	if err != nil {
		return nil, err
	}
	return kept, d.forget(ctx, slices.Clone(kept), time.Minute)
}

// sweepStale removes a batch of dead tickets and of mere gates.
func (d *Driver) sweepStale(ctx context.Context) ([]string, error) {
	stale, err := d.names(ctx, "stale")
	for i := 0; i < len(stale) && err == nil; i++ {
		_, err = d.bury(ctx, stale[i])
	}
	return stale, err
}

// sweepTx removes a batch of rows that no transaction holds.
func (d *Driver) sweepTx(ctx context.Context) (idle []string, err error) {
	some, err := d.names(ctx, "txany")
	if err != nil || len(some) == 0 {
		return nil, err
	}
	err = d.transaction(ctx, func(c *sql.Conn) (err error) {
		idle, err = d.sweepIdle(ctx, c)
		return err
	})
	return idle, err
}

// sweepIdle is done in a transaction.
func (d *Driver) sweepIdle(ctx context.Context, c *sql.Conn) (names []string, err error) {
	rows, err := c.QueryContext(ctx, d.w.render("txidle", values{most: batch}))
	if err != nil {
		return nil, err
	}
	err = each(rows, func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		names = append(names, name)
		return err
	})
	if err == nil && len(names) > 0 {
		_, err = c.ExecContext(ctx, d.w.render("txsweep", values{names: names}))
	}
	return names, err
}

package mysql

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// sweepEvery is how often a driver that was used deletes what others have left: expired
// tickets, anchors of empty queues, rows of AcquireTx.
const sweepEvery = 20 * time.Second

// sweepLater starts the sweeps, unless they are running.
func (d *Driver) sweepLater() {
	if d.sweeping.Load() || d.sweeping.Swap(true) {
		return
	}
	d.begin(func() {
		for retry.Sleep(d.ctx, sweepEvery, nil) {
			ctx, cancel := context.WithTimeout(d.ctx, sweepEvery)
			d.anchors.clear(ctx, idleFor)
			_ = d.sweep(ctx) // the next one does the rest
			cancel()
		}
	})
}

// sweep deletes batch by batch, but does not repeat a batch that cannot be deleted.
func (d *Driver) sweep(ctx context.Context) error {
	for _, step := range []func(context.Context) ([]string, error){d.sweepStale, d.sweepTx} {
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

// sweepStale deletes the expired tickets of some names, and anchors of empty queues.
func (d *Driver) sweepStale(ctx context.Context) ([]string, error) {
	stale, err := d.names(ctx, "stale")
	for i := 0; i < len(stale) && err == nil; i++ {
		_, err = d.reap(ctx, stale[i])
	}
	return stale, err
}

// sweepTx deletes rows of AcquireTx that no transaction has locked.
func (d *Driver) sweepTx(ctx context.Context) (idle []string, err error) {
	some, err := d.names(ctx, "tx_any")
	if err != nil || len(some) == 0 {
		return nil, err
	}
	err = d.transaction(ctx, func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, d.w.render("tx_idle", values{most: batch}))
		idle, err = scanAll(rows, err, scanOne[string])
		if err == nil && len(idle) > 0 {
			_, err = c.ExecContext(ctx, d.w.render("tx_sweep", values{names: idle}))
		}
		return err
	})
	return idle, err
}

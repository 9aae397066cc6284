package mysql

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// What others have left (expired tickets, anchors of empty queues, rows of AcquireTx) is deleted by one of the processes
// that have used the driver and not closed it. A sweep reads all tickets, so it must not be done once for each process.
const (
	sweepEvery = 20 * time.Second // and up to a tenth longer, so that processes do not ask at once
	sweepTurn  = 10 * time.Second // by then another process sweeps, if that whose turn it is has crashed
	sweepBound = time.Second      // for one queue, whose anchor another transaction may have locked
)

// sweepLater starts the sweeps, unless they are running.
func (d *Driver) sweepLater() {
	if d.sweeping.Load() || d.sweeping.Swap(true) {
		return
	}
	d.begin(func() {
		for wait := sweepEvery; retry.Sleep(d.ctx, wait+rand.N(sweepEvery/10), nil); {
			ctx, cancel := context.WithTimeout(d.ctx, sweepEvery)
			d.anchors.clear(ctx, idleFor)
			wait = d.sweepInTurn(ctx)
			cancel()
		}
	})
}

// sweepInTurn sweeps, unless another process does or has done so. It returns when a sweep is due again.
func (d *Driver) sweepInTurn(ctx context.Context) time.Duration {
	n, err := d.change(ctx, "sweep_turn", values{ttl: sweepTurn})
	switch {
	case err != nil:
		return sweepEvery
	case n == 0:
		left, err := query(ctx, d, d.w.render("sweep_left", values{}), scanOne[int64])
		if err != nil || len(left) == 0 {
			return sweepEvery
		}
		return max(0, min(time.Duration(left[0])*time.Microsecond, sweepEvery))
	}
	if d.sweep(ctx) == nil {
		_, _ = d.exec(ctx, "sweep_done", values{ttl: sweepEvery}) // else another sweeps soon
	}
	return sweepEvery
}

// sweep deletes expired tickets and anchors of empty queues, in the order of their entries, and then rows of AcquireTx.
// What cannot be deleted now is left to the next sweep.
func (d *Driver) sweep(ctx context.Context) error {
	for after, more := "", true; more; {
		var err error
		if after, more, err = d.sweepStale(ctx, after); err != nil {
			return err
		}
	}
	var last []string
	for {
		some, err := d.sweepTx(ctx)
		if err != nil || len(some) < batch || slices.Equal(some, last) {
			return err
		}
		last = some
	}
}

// sweepStale sweeps the queues of some entries, those after a given one. It returns the last of them, and whether there
// may be more.
func (d *Driver) sweepStale(ctx context.Context, after string) (last string, more bool, err error) {
	stale, err := query(ctx, d, d.w.render("stale", values{after: after, most: batch}), func(rows *sql.Rows) (e [2]string, err error) {
		err = rows.Scan(&e[0], &e[1])
		return e, err
	})
	for i, e := range stale {
		last = e[0]
		if i == 0 || e[1] != stale[i-1][1] {
			bounded, cancel := context.WithTimeout(ctx, sweepBound)
			_, err := d.reap(bounded, e[1])
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				return last, false, err
			}
		}
	}
	return last, len(stale) == batch, err
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

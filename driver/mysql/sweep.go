package mysql

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"
)

// Sweep implements sqlqueue.Store.
func (s *store) Sweep(ctx context.Context, after string) (last string, busy int64, err error) {
	if after == "" {
		if err := s.sweepProcesses(ctx); err != nil {
			return "", 0, err
		}
	}
	const most = 100
	names, err := query(ctx, s, s.w.render("stale", values{after: after, most: most}), scanOne[string])
	if err != nil {
		return "", 0, err
	}
	alone, err := s.sweepAlone(ctx, names)
	if err != nil {
		return "", 0, err
	}
	for _, name := range names {
		if slices.Contains(alone, name) {
			continue
		}
		_, err := s.turn(ctx, 0, name, true, func(t *turn) error {
			n, err := t.reap()
			if err == nil {
				err = t.advance()
			}
			if n == 0 && t.anchored { // what is left may be kept by a transaction that it guards
				busy++
			}
			return err
		})
		if errors.Is(err, busyError{}) {
			busy++
		} else if err != nil {
			return "", busy, err
		}
	}
	if len(names) == most {
		return names[most-1], busy, nil
	}
	return "", busy, s.sweepTxs(ctx)
}

// sweepProcesses removes processes that are silent. It reads them first: a statement that deletes by a time would lock all
// rows, and no heartbeat may wait for that.
func (s *store) sweepProcesses(ctx context.Context) error {
	silent, err := query(ctx, s, s.w.render("silent", values{}), scanOne[int64])
	if err == nil && len(silent) > 0 {
		_, err = s.exec(ctx, "reap_processes", values{numbers: silent})
	}
	return err
}

// sweepAlone removes the tickets that nobody waits for.
func (s *store) sweepAlone(ctx context.Context, names []string) (alone []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	err = s.transaction(ctx, func(ctx context.Context, c *sql.Conn) (func(), error) {
		rows, err := c.QueryContext(ctx, s.w.render("alone", values{names: names}))
		alone, err = scanAll(rows, err, scanOne[string])
		if err == nil && len(alone) > 0 {
			_, err = c.ExecContext(ctx, s.w.render("remove", values{entries: alone}))
		}
		return func() {}, err
	})
	return alone, err
}

// SweepTurn implements sqlqueue.Store.
func (s *store) SweepTurn(ctx context.Context, life time.Duration, done bool) (left time.Duration, err error) {
	statement := "sweep_turn"
	if done {
		statement = "sweep_done"
	}
	n, err := s.change(ctx, statement, values{left: life})
	if err != nil || n > 0 || done {
		return 0, err
	}
	micros, err := query(ctx, s, s.w.render("sweep_left", values{}), scanOne[int64])
	if err != nil || len(micros) == 0 {
		return life, err
	}
	return max(time.Duration(micros[0])*time.Microsecond, time.Millisecond), nil
}

// sweepTxs deletes rows of AcquireTx that no transaction has locked.
func (s *store) sweepTxs(ctx context.Context) error {
	for last := []string(nil); ; {
		some, err := s.sweepTx(ctx)
		if err != nil || len(some) < batch || slices.Equal(some, last) {
			return err
		}
		last = some
	}
}

func (s *store) sweepTx(ctx context.Context) (idle []string, err error) {
	some, err := query(ctx, s, s.w.render("tx_any", values{}), scanOne[string])
	if err != nil || len(some) == 0 {
		return nil, err
	}
	err = s.transaction(ctx, func(ctx context.Context, c *sql.Conn) (func(), error) {
		rows, err := c.QueryContext(ctx, s.w.render("tx_idle", values{most: batch}))
		idle, err = scanAll(rows, err, scanOne[string])
		if err == nil && len(idle) > 0 {
			_, err = c.ExecContext(ctx, s.w.render("tx_sweep", values{names: idle}))
		}
		return func() {}, err
	})
	return idle, err
}

package mysql

import (
	"context"
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
	var names []string
	for n := int64(1); n > 0; { // until all are gone that nobody waits for
		names, err = query(ctx, s, s.w.render("stale", values{"after": after, "most": most}), scanOne[string])
		if err == nil {
			n, _, err = s.exec(ctx, "alone", values{"names": names, "most": most})
		}
		if err != nil {
			return "", 0, err
		}
	}
	for _, name := range names {
		d, err := s.call(ctx, "advance_call", valuesOf(name, "").with(values{"process": 0, "mark": true}))
		if err != nil {
			return "", busy, err
		}
		if d.what == doneNothing || d.number > 0 { // somebody has locked it, or it is guarded
			busy++
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
	silent, err := query(ctx, s, s.w.render("silent", nil), scanOne[int64])
	if err == nil && len(silent) > 0 {
		_, _, err = s.exec(ctx, "reap_processes", values{"numbers": silent})
	}
	return err
}

// SweepTurn implements sqlqueue.Store.
func (s *store) SweepTurn(ctx context.Context, life time.Duration, done bool) (left time.Duration, err error) {
	statement := "sweep_turn"
	if done {
		statement = "sweep_done"
	}
	n, _, err := s.exec(ctx, statement, values{"ttl": life})
	if err != nil || n > 0 || done {
		return 0, err
	}
	micros, err := query(ctx, s, s.w.render("sweep_left", nil), scanOne[int64])
	if err != nil || len(micros) == 0 {
		return life, err
	}
	return max(time.Duration(micros[0])*time.Microsecond, time.Millisecond), nil
}

// sweepTxs deletes rows of AcquireTx that no transaction has locked.
func (s *store) sweepTxs(ctx context.Context) error {
	for {
		if n, _, err := s.exec(ctx, "tx_sweep", values{"most": batch}); err != nil || n < batch {
			return err
		}
	}
}

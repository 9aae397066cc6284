package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlline"
)

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// mostAtOnce is the number of leases that one statement renews.
const mostAtOnce = 5000

// RenewAll implements driver.BatchRenewer.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	for from := 0; from < len(rs); from += mostAtOnce {
		to := min(from+mostAtOnce, len(rs))
		d.renewSome(ctx, rs[from:to], errs[from:to])
	}
	return errs
}

func (d *Driver) renewSome(ctx context.Context, rs []driver.Renewal, errs []error) {
	var (
		names         = make([][]byte, len(rs))
		slots, tokens = make([]int64, len(rs)), make([]int64, len(rs))
		ids           = make([]string, len(rs))
		ttls          = make([]int64, len(rs))
		there         = make([]bool, len(rs))
	)
	for i, r := range rs {
		names[i], ids[i], ttls[i] = []byte(r.Name), r.ID, sqlline.Micros(r.TTL)
		slots[i], tokens[i] = slot(r.Hold), int64(r.Token) //nolint:gosec // tokens are bigints
	}
	err := d.retry(ctx, true, func() error {
		clear(there)
		return d.query(ctx, true, nil, func(rows pgx.Rows) error {
			var i int64
			if err := rows.Scan(&i); err != nil {
				return err
			}
			if i >= 1 && i <= int64(len(there)) {
				there[i-1] = true
			}
			return nil
		}, d.w.renew, names, slots, tokens, ids, ttls)
	})
	err = d.failed(ctx, err)
	for i, r := range rs {
		switch {
		case err != nil:
			errs[i] = err
		case !there[i]:
			errs[i] = driver.ErrLost
			d.line.letGo(r.ID)
		}
	}
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	var rep reply
	locks := h.Shared || d.line.waited(h.ID)
	err := d.retry(ctx, false, func() (err error) {
		if !locks {
			rep, err = d.call(ctx, nil, d.w.releaseFirst, []byte(h.Name), h.ID, d.line.current())
			if err != nil || rep.words[0] != "q" {
				return err
			}
			locks = true // whoever waited has left, or a reader is next, or it is not there
		}
		rep, err = d.call(ctx, nil, d.w.release, []byte(h.Name), h.ID, d.line.current(), true)
		return err
	})
	d.line.letGo(h.ID) // not sooner: what is not held here is an orphan
	if err != nil {
		d.line.missed() // grants that were in the answer
		return d.failed(ctx, err)
	}
	if rep.words[0] == "l" {
		return driver.ErrLost
	}
	return nil
}

package postgres

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// renewMost is the number of leases that one statement renews.
const renewMost = 5000

// RenewAll implements driver.BatchRenewer.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) (errs []error) {
	for some := range slices.Chunk(rs, renewMost) {
		errs = append(errs, d.renew(ctx, some)...)
	}
	return errs
}

func (d *Driver) renew(ctx context.Context, rs []driver.Renewal) []error {
	var (
		names         = make([][]byte, len(rs))
		slots, tokens = make([]int64, len(rs)), make([]int64, len(rs))
		ids           = make([]string, len(rs))
		ttls          = make([]int64, len(rs))
		errs          = make([]error, len(rs))
	)
	for i, r := range rs {
		names[i], ids[i], ttls[i] = []byte(r.Name), r.ID, sqlqueue.Micros(r.TTL)
		slots[i], tokens[i] = slot(r.Hold), int64(r.Token) //nolint:gosec // tokens are bigints
		errs[i] = driver.ErrLost
	}
	renewed, err := repeat(ctx, d, true, func() ([]int, error) {
		return query(ctx, d, sending{}, pgx.RowTo[int], d.w.renew, names, slots, tokens, ids, ttls)
	})
	for _, i := range renewed {
		errs[i-1] = nil
	}
	for i, r := range rs {
		switch {
		case err != nil:
			errs[i] = err
		case errs[i] != nil:
			d.waiters.forget(r.ID)
		}
	}
	return errs
}

// Shorten implements driver.Shortener. It notifies the first waiter's process to check the queue in time.
func (d *Driver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	held, err := repeat(ctx, d, true, func() (bool, error) {
		found, err := query(ctx, d, sending{}, pgx.RowTo[bool], d.w.shorten, []byte(h.Name), slot(h), h.ID, sqlqueue.Micros(left))
		return len(found) == 1 && found[0], err
	})
	if err == nil && !held {
		err = driver.ErrLost
	}
	return err
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	return d.remove(ctx, h.ID, d.w.release, []byte(h.Name), h.ID, d.waiters.current())
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if token == 0 || token > math.MaxInt64 { // no ticket has such a token
		return driver.ErrLost
	}
	return d.remove(ctx, "", d.w.breaks, []byte(name), int64(token), d.waiters.current())
}

// remove calls a function that removes a ticket. The ID is given if it may be held here.
func (d *Driver) remove(ctx context.Context, id, sql string, args ...any) error {
	answer, err := repeat(ctx, d, false, func() (string, error) { return d.call(ctx, nil, sql, args...) })
	d.waiters.forget(id) // not sooner: an unknown ticket is an orphan
	if err != nil {
		d.waiters.mayHaveMissed() // the answer may have contained grants
		return err
	}
	if answer == "l" {
		return driver.ErrLost
	}
	return nil
}

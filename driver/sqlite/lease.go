package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer, in one transaction.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs, err := ask(ctx, d.s, d.closing, writes, func(t *tx) ([]error, error) {
		errs := make([]error, len(rs))
		for i, r := range rs {
			n, _, err := t.count(sqlExtend, t.after(r.TTL), []byte(r.Name), r.ID)
			if err != nil {
				return nil, err
			}
			if n == 0 { // what is over was removed at the begin of the transaction
				errs[i] = driver.ErrLost
			}
		}
		return errs, nil
	})
	if err != nil {
		errs = make([]error, len(rs))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	return d.remove(ctx, h.Name, sqlFind, h.ID)
}

// Break implements driver.Breaker. The ticket's process is notified.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	return d.remove(ctx, name, sqlFindToken, int64(token)) //nolint:gosec // no ticket has a greater one
}

// remove deletes a ticket that a query finds. Its process is told, unless it is the
// one that releases it.
func (d *Driver) remove(ctx context.Context, name, query string, key any) error {
	_, err := ask(ctx, d.s, d.closing, writes, func(t *tx) (struct{}, error) {
		h := driver.Hold{Name: name}
		var process, state string
		var ttl int64
		found, err := t.row([]any{&h.Token, &h.ID, &process, &h.Shared, &state, &ttl}, query, []byte(name), key)
		switch {
		case err != nil:
			return struct{}{}, err
		case !found:
			return struct{}{}, driver.ErrLost
		case query == sqlFind && process == d.process:
			d.waiters.deliver(h.ID, answer{err: driver.ErrLost}) // should it wait all the same
		case query == sqlFindToken || state != "held":
			err = t.lost(process, h)
		}
		return struct{}{}, cmp.Or(err, t.exec(sqlDelete, h.Token), t.settle([]byte(name)))
	})
	return err
}

// lost leaves word for the process of a ticket that was removed.
func (t *tx) lost(process string, h driver.Hold) error {
	t.notified = append(t.notified, process)
	return t.exec(sqlLost, h.Token, process, []byte(h.Name), h.ID, h.Shared, t.after(lossKept))
}

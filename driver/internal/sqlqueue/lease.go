package sqlqueue

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Renew implements driver.Driver.
func (e *Engine) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return e.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer.
func (e *Engine) RenewAll(ctx context.Context, rs []driver.Renewal) (errs []error) {
	for some := range slices.Chunk(rs, RenewMost) {
		errs = append(errs, e.renew(ctx, some)...)
	}
	return errs
}

func (e *Engine) renew(ctx context.Context, rs []driver.Renewal) []error {
	ctx = context.WithValue(ctx, haste{}, inTime)
	renewed, err := Repeat(ctx, e, Twice, func() ([]int, error) { return e.store.Renew(ctx, rs) })
	errs := slices.Repeat([]error{driver.ErrLost}, len(rs))
	if err != nil {
		return slices.Repeat([]error{err}, len(rs))
	}
	for _, i := range renewed {
		errs[i] = nil
	}
	for i, r := range rs {
		if errs[i] != nil {
			e.book.forget(r.ID)
		}
	}
	return errs
}

// Shorten implements driver.Shortener.
func (e *Engine) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	held, err := Repeat(ctx, e, Twice, func() (bool, error) { return e.store.Shorten(ctx, h, left) })
	if err == nil && !held {
		err = driver.ErrLost
	}
	return err
}

// Release implements driver.Driver. While a request for the ticket may still take it, the ticket is removed, and the
// answer is that the store is not available: the core asks again, until no request can bring the ticket back.
func (e *Engine) Release(ctx context.Context, h driver.Hold) error {
	held, r := e.book.known(h.ID)
	pending := r.pending(time.Now()) // before this request is sent: what takes the ticket before it is executed does no harm
	err := e.remove(ctx, func() (Removal, error) { return e.store.Remove(ctx, e.book.current(), h) })
	switch {
	case err != nil && !errors.Is(err, driver.ErrLost):
		return err
	case pending:
		return driver.Unavailable(errPending)
	}
	e.book.released(h.ID, held, r)
	return err
}

// errPending says that a ticket that is not there may come to be, by a request that was made before.
var errPending = errors.New("a request for the ticket is under way, or was not answered and may still arrive")

// Break implements driver.Breaker.
func (e *Engine) Break(ctx context.Context, name string, token uint64) error {
	if token == 0 || token > math.MaxInt64 { // no ticket has such a token
		return driver.ErrLost
	}
	return e.remove(ctx, func() (Removal, error) { return e.store.Break(ctx, e.book.current(), name, token) })
}

// remove sends a request that removes a ticket.
func (e *Engine) remove(ctx context.Context, f func() (Removal, error)) error {
	r, err := Repeat(ctx, e, Once, f)
	e.deliver(r.Grants)
	if err != nil {
		return err
	}
	if !r.Found {
		return driver.ErrLost
	}
	return nil
}

// deliver delivers the grants in an answer.
func (e *Engine) deliver(grants []Grant) {
	for _, g := range grants {
		e.book.granted(g)
	}
}

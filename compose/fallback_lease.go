package compose

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Renew implements driver.Driver, on the store that has the ticket.
func (f *FallbackDriver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return f.stores[max(f.storeOf(h), primary)].Renew(ctx, h, ttl)
}

// RenewAll implements driver.BatchRenewer: one batch for each store.
func (f *FallbackDriver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	var group sync.WaitGroup
	for store, d := range f.stores {
		var batch []driver.Renewal
		var at []int
		for i, r := range rs {
			if max(f.storeOf(r.Hold), primary) == store {
				batch, at = append(batch, r), append(at, i)
			}
		}
		if len(batch) == 0 {
			continue
		}
		group.Go(func() {
			for i, err := range renewAll(ctx, d, batch) {
				errs[at[i]] = err
			}
		})
	}
	group.Wait()
	return errs
}

// Shorten implements driver.Shortener, on the store that has the ticket.
func (f *FallbackDriver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	return shorten(ctx, f.stores[max(f.storeOf(h), primary)], h, left)
}

// Release implements driver.Driver, on the store that has the ticket. An unknown ticket
// is released on both stores.
func (f *FallbackDriver) Release(ctx context.Context, h driver.Hold) error {
	store := f.storeOf(h)
	if store == nowhere {
		return oneOf(f.both(func(_ int, d driver.Driver) error { return d.Release(ctx, h) }))
	}
	err := f.stores[store].Release(ctx, h)
	if err == nil || errors.Is(err, driver.ErrLost) {
		f.forget(h)
	}
	return err
}

// both asks both stores at once.
func (f *FallbackDriver) both(ask func(i int, d driver.Driver) error) (errs [2]error) {
	var group sync.WaitGroup
	for i, d := range f.stores {
		group.Go(func() { errs[i] = ask(i, d) })
	}
	group.Wait()
	return errs
}

// impatiently asks both stores at once, each for no longer than the patience or half of
// the caller's time. A primary that is away is not asked.
func (f *FallbackDriver) impatiently(ctx context.Context, ask func(ctx context.Context, i int, d driver.Driver) error) [2]error {
	errs := f.both(func(i int, d driver.Driver) error {
		if away := f.outages[i].cause(); i == primary && away != nil {
			return away
		}
		bounded, cancel := context.WithTimeout(ctx, f.bound(ctx))
		defer cancel()
		return ask(bounded, i, d)
	})
	for i, err := range errs {
		if driver.IsUnavailable(err) {
			f.outages[i].startProbe()
		}
	}
	return errs
}

// either asks both stores impatiently. If one is unavailable, the answer of the other
// counts.
func (f *FallbackDriver) either(ctx context.Context, ask func(ctx context.Context, i int, d driver.Driver) error) error {
	errs := f.impatiently(ctx, ask)
	if driver.IsUnavailable(errs[primary]) && driver.IsUnavailable(errs[secondary]) || ctx.Err() != nil {
		return errors.Join(errs[:]...)
	}
	for i, err := range errs {
		if driver.IsUnavailable(err) {
			errs[i] = nil
		}
	}
	return errors.Join(errs[:]...)
}

// Inspect implements driver.Driver: the queue of the secondary, which has the degraded
// tickets, and after it the queue of the primary.
func (f *FallbackDriver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	var queues [2][]driver.Ticket
	err := f.either(ctx, func(ctx context.Context, i int, d driver.Driver) (err error) {
		queues[i], err = d.Inspect(ctx, name)
		return err
	})
	if err != nil {
		return nil, err
	}
	// A ticket of the secondary that the primary has too is an orphan there.
	rest := slices.DeleteFunc(queues[primary], func(t driver.Ticket) bool { return find(queues[secondary], t.ID) >= 0 })
	return append(queues[secondary], rest...), nil
}

// List implements driver.Lister.
func (f *FallbackDriver) List(ctx context.Context) ([]string, error) {
	var lists [2][]string
	err := f.either(ctx, func(ctx context.Context, i int, d driver.Driver) (err error) {
		lists[i], err = list(ctx, d)
		return err
	})
	if err != nil {
		return nil, err
	}
	all := slices.Concat(lists[:]...)
	slices.Sort(all)
	return slices.Compact(all), nil
}

// Break implements driver.Breaker: it breaks the tickets with that token, on both stores.
func (f *FallbackDriver) Break(ctx context.Context, name string, token uint64) error {
	return oneOf(f.impatiently(ctx, func(ctx context.Context, _ int, d driver.Driver) error {
		return breakTicket(ctx, d, name, token)
	}))
}

// oneOf is the answer to the removal of a ticket from both stores, when at most one of
// them has it: the other answers ErrLost, or does not answer.
func oneOf(errs [2]error) error {
	a, b := errs[primary], errs[secondary]
	switch {
	case a == nil || b == nil:
		return nil
	case errors.Is(a, driver.ErrLost):
		return b
	case errors.Is(b, driver.ErrLost):
		return a
	}
	return errors.Join(a, b)
}

// Ping implements driver.Pinger: one of the stores has to answer.
func (f *FallbackDriver) Ping(ctx context.Context) error {
	return f.either(ctx, func(ctx context.Context, _ int, d driver.Driver) error { return ping(ctx, d) })
}

// Bounds implements driver.Bounder: the worse of both. There is no Silence: what the core asks
// while calls wait shows soon that a store is away.
func (f *FallbackDriver) Bounds(ttl time.Duration) driver.Bounds {
	a, b := driver.BoundsOf(f.stores[primary], ttl), driver.BoundsOf(f.stores[secondary], ttl)
	return driver.Bounds{
		MinTTL: max(a.MinTTL, b.MinTTL), MaxTTL: shorter(a.MaxTTL, b.MaxTTL),
		Crash: max(a.Crash, b.Crash), Liveness: max(a.Liveness, b.Liveness),
	}
}

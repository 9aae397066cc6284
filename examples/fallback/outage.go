package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// outage is a store that is unavailable while away is true, when nothing is held there: what
// arrives then is refused.
type outage struct {
	driver.Driver
	away *atomic.Bool
}

// open opens the store that a URL names.
func open(ctx context.Context, url string, away *atomic.Bool) (driver.Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	store, err := driver.Open(ctx, u)
	if err != nil {
		return nil, err
	}
	if err := u.Done(); err != nil { // a parameter that nobody knows
		return nil, errors.Join(err, store.Close())
	}
	return &outage{store, away}, nil
}

var errAway = driver.Unavailable(errors.New("connection refused"))

func (o *outage) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if o.away.Load() {
		return driver.Grant{}, driver.NoTicket(errAway)
	}
	return o.Driver.Acquire(ctx, r)
}

func (o *outage) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if o.away.Load() {
		return nil, errAway
	}
	return o.Driver.Inspect(ctx, name)
}

// Bounds are the store's: some cannot give a short lease.
func (o *outage) Bounds(ttl time.Duration) driver.Bounds { return driver.BoundsOf(o.Driver, ttl) }

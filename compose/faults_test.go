package compose_test

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

var errDown = driver.Unavailable(errors.New("connection refused"))

// down is a store that refuses everybody.
type down struct{ *memory.Driver }

func (down) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, driver.NoTicket(errDown)
}
func (down) Renew(context.Context, driver.Hold, time.Duration) error  { return errDown }
func (down) Release(context.Context, driver.Hold) error               { return errDown }
func (down) Inspect(context.Context, string) ([]driver.Ticket, error) { return nil, errDown }
func (down) List(context.Context) ([]string, error)                   { return nil, errDown }
func (down) Break(context.Context, string, uint64) error              { return errDown }

// flaky is a store that can be taken away, and that can lose answers.
type flaky struct {
	*memory.Driver
	away  atomic.Bool // refuses everybody
	hangs atomic.Bool // never answers
	loses atomic.Bool // does what it is asked and never answers

	asked   atomic.Int64 // calls of Acquire
	pings   atomic.Int64 // calls of Ping
	pinging atomic.Int64 // of them under way
	atOnce  atomic.Bool  // two were under way at once
}

func (f *flaky) Ping(ctx context.Context) error {
	f.pings.Add(1)
	if f.pinging.Add(1) > 1 {
		f.atOnce.Store(true)
	}
	defer f.pinging.Add(-1)
	return f.pass(ctx, func() error { return nil })
}

func (f *flaky) pass(ctx context.Context, ask func() error) error {
	switch {
	case f.away.Load():
		return errDown
	case f.hangs.Load():
		<-ctx.Done()
		return context.Cause(ctx)
	}
	err := ask()
	if f.loses.Load() {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

func (f *flaky) Acquire(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	f.asked.Add(1)
	err = f.pass(ctx, func() (err error) { g, err = f.Driver.Acquire(ctx, r); return err })
	if errors.Is(err, errDown) {
		err = driver.NoTicket(err)
	}
	return g, err
}

func (f *flaky) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return f.pass(ctx, func() error { return f.Driver.Renew(ctx, h, ttl) })
}

func (f *flaky) Release(ctx context.Context, h driver.Hold) error {
	return f.pass(ctx, func() error { return f.Driver.Release(ctx, h) })
}

func (f *flaky) Inspect(ctx context.Context, name string) (q []driver.Ticket, err error) {
	err = f.pass(ctx, func() (err error) { q, err = f.Driver.Inspect(ctx, name); return err })
	return q, err
}

func (f *flaky) List(ctx context.Context) (names []string, err error) {
	err = f.pass(ctx, func() (err error) { names, err = f.Driver.List(ctx); return err })
	return names, err
}

func (f *flaky) Break(ctx context.Context, name string, token uint64) error {
	return f.pass(ctx, func() error { return f.Driver.Break(ctx, name, token) })
}

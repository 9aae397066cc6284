package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/probe"
)

// stallTries is how often something is tried, at most, before it is tried once without a stall
// of the store or of this process.
const stallTries = 8

// measure returns what f has measured, which the driver has to do within b. A
// measurement that is longer, beside which the store or this process stood still for half
// of the bound, proves nothing and is repeated.
func (e *env) measure(b bound, f func() time.Duration) (took time.Duration) {
	_ = e.steady(b.d/2, func() error {
		if took = f(); took > b.d {
			return fmt.Errorf("%v, want at most %v", took, b)
		}
		return nil
	})
	return took
}

// steady calls f, again and again, until it returns nil, or an error beside which the
// store and this process did not stand still for limit. It returns that error.
func (e *env) steady(limit time.Duration, f func() error) (err error) {
	_, d := e.controlled()
	name := e.uncheckedName("probe")
	ask := func() {
		ctx, cancel := context.WithTimeout(e.ctx, patience)
		defer cancel()
		_, _ = d.Inspect(ctx, name)
	}
	for range stallTries {
		stall := probe.Stall(ask, func() { err = f() })
		if err == nil || stall < limit {
			return err
		}
		e.logf("does not count, since the store or this process stood still for %v: %v", stall, err)
	}
	e.failf("the store or this process stood still for %v or longer in each of %d tries: the machine is too busy; the last: %w", limit, stallTries, err)
	return err
}

// notReleased fails unless the store answers that there is no such ticket. A client that
// has waited for an answer may send a release again, and then takes that answer for
// success (D13).
func (e *env) notReleased(d driver.Driver, h driver.Hold, doing string, args ...any) {
	e.ok(e.steady(20*time.Millisecond, func() error {
		if err := d.Release(e.within(patience), h); !errors.Is(err, driver.ErrLost) {
			return fmt.Errorf("want %w, not %s", driver.ErrLost, fmt.Sprint(err))
		}
		return nil
	}), doing, args...)
}

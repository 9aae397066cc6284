package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// A slow observer hears that a call waits until its wait limit has passed, and the grant is
// late. The store has queued the ticket, so the call was not acquired in time; the store
// was not away.
func TestLimitPassesWithALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
			asked := time.Now()
			r.Joined()
			<-ctx.Done() // and it was granted at the same time
			return driver.Grant{Token: 1, Asked: asked}, nil
		}
		s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error { return ctx.Err() }
		c := locker.New(s, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				time.Sleep(20 * time.Second)
			}
		}))
		defer c.Close()
		_, err := c.Acquire(t.Context(), "a", locker.WithTTL(10*time.Second), locker.WithWait(time.Second))
		if !errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the wait limit has passed: %v", err)
		}
	})
}

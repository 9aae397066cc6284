package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// A release that meets Close is no success while the store has confirmed nothing: of one lock, and of several. The moment
// at which Close has just ended a lease is met in every few runs only.
func TestReleaseBesideClose(t *testing.T) {
	for what, group := range map[string]bool{"one": false, "several": true} {
		t.Run(what, func(t *testing.T) {
			var confirmed atomic.Int64
			for range 6 {
				synctest.Test(t, func(t *testing.T) {
					s := newStub()
					s.release = func(context.Context, driver.Hold, releaseFunc) error {
						return driver.Unavailable(errors.New("no answer"))
					}
					l := locker.New(s, locker.WithReleaseTimeout(time.Millisecond))
					var ks []*locker.Lock
					for i := range 5000 {
						name := fmt.Sprint(i)
						k, err := l.Acquire(t.Context(), name, locker.WithoutReentry())
						if group {
							k, err = locker.AcquireAll(t.Context(), l, []string{"of " + name})
						}
						want(t, err, nil)
						ks = append(ks, k)
					}
					var all sync.WaitGroup
					for i, k := range ks {
						if i == len(ks)/10 {
							all.Go(func() { _ = l.Close() })
						}
						all.Go(func() {
							if k.Release(t.Context()) == nil {
								confirmed.Add(1)
							}
						})
					}
					all.Wait()
				})
			}
			if n := confirmed.Load(); n > 0 {
				t.Errorf("%d releases of 30,000 returned nil", n)
			}
		})
	}
}

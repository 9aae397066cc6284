package redis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestShorten: a lease that is shortened ends after that time, and not before, and the first
// waiter is granted then. A lease is never lengthened.
func TestShorten(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	d, other := openAt(t, srv.URL()), openAt(t, srv.URL())
	c := dial(t, srv.Addr())
	for _, shared := range []bool{false, true} {
		r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute, Shared: shared}
		if err := d.Shorten(t.Context(), r.Hold(0), time.Second); !errors.Is(err, driver.ErrLost) {
			t.Errorf("shared=%t: of nothing: %v", shared, err)
		}
		if _, err := d.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := d.Shorten(t.Context(), r.Hold(0), time.Hour); err != nil {
			t.Error(err)
		}
		if left := c.PTTL(t.Context(), d.Key(r.Name)).Val(); left > time.Minute {
			t.Errorf("shared=%t: Shorten has lengthened a lease to %v", shared, left)
		}
		wait := driver.Request{Name: r.Name, ID: newName(), TTL: time.Minute, Wait: true}
		joined, granted := make(chan struct{}), make(chan error, 1)
		wait.Joined = func() { close(joined) }
		go func() { _, err := other.Acquire(context.Background(), wait); granted <- err }()
		<-joined
		if err := d.Shorten(t.Context(), wait.Hold(0), time.Millisecond); !errors.Is(err, driver.ErrLost) {
			t.Errorf("shared=%t: of a waiter: %v", shared, err)
		}
		const left = 300 * time.Millisecond
		begun := time.Now()
		if err := d.Shorten(t.Context(), r.Hold(0), left); err != nil {
			t.Fatal(err)
		}
		took := testbed.Elapsed(func() {
			if err := <-granted; err != nil {
				t.Error(err)
			}
		})
		if early := time.Since(begun); early < left {
			t.Errorf("shared=%t: granted after %v of %v", shared, early, left)
		}
		if took > left+200*time.Millisecond+load {
			t.Errorf("shared=%t: granted after %v, want %v", shared, took, left)
		}
		if err := d.Renew(t.Context(), r.Hold(0), time.Minute); !errors.Is(err, driver.ErrLost) {
			t.Errorf("shared=%t: a renewal after the end: %v", shared, err)
		}
		if err := other.Release(t.Context(), wait.Hold(0)); err != nil {
			t.Error(err)
		}
	}
}

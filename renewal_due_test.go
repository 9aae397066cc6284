package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// A lease is renewed before its validity ends, however much longer it was extended than its TTL is,
// and however large the safety margin is: then the next renewal would otherwise be due after that.
func TestRenewalIsDueBeforeTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		margin time.Duration // 0: the default
		extend time.Duration
	}{
		"extended by far":       {extend: 2 * time.Minute},
		"extended for hours":    {extend: 10 * time.Hour},
		"extended, and shorter": {extend: 1500 * time.Millisecond},
		"a large margin":        {margin: 800 * time.Millisecond},
		"both":                  {margin: 800 * time.Millisecond, extend: 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var opts []locker.ClientOption
				if test.margin > 0 {
					opts = append(opts, locker.WithSafetyMargin(test.margin))
				}
				l := locker.New(newStub(), opts...)
				defer l.Close()
				k := acquire(t, l, "a", locker.WithTTL(time.Second))
				if test.extend > 0 {
					if err := k.Extend(context.Background(), test.extend); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(test.extend + time.Minute)
				if err := k.Err(); err != nil {
					t.Errorf("after %v: %v", test.extend+time.Minute, err)
				}
			})
		})
	}
}

// A re-entry with a longer TTL has the lease renewed when a third of that is over.
func TestRenewalAfterALongerReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(time.Second))
		inner, err := l.Acquire(k.Context(context.Background()), "a", locker.WithTTL(3*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		before := len(s.renewals())
		time.Sleep(65 * time.Second)
		if n := len(s.renewals()) - before; n != 1 {
			t.Errorf("%d renewals in 65 s of a lease of 3 min, want 1", n)
		}
		time.Sleep(5 * time.Minute)
		if err := inner.Err(); err != nil {
			t.Error(err)
		}
	})
}

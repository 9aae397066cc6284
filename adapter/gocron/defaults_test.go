package gocron_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	lockergocron "github.com/lockerproject/locker/adapter/gocron"
	"github.com/lockerproject/locker/lockertest"
)

// A leader leads for longer than its lease, even if the locks of its Locker are not renewed
// by default.
func TestLeaderIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fixed := locker.WithDefaults(locker.WithoutRenewal(), locker.WithTTL(time.Second))
		l := lockertest.New(fixed)
		defer l.Close()
		other := l.Join(fixed)
		defer other.Close()
		for i, l := range []locker.Locker{l, other} {
			e, err := lockergocron.NewElector(l, "leader")
			if err != nil {
				t.Fatal(err)
			}
			if err := e.IsLeader(t.Context()); (err == nil) != (i == 0) {
				t.Errorf("scheduler %d of two: IsLeader is %v", i+1, err)
			}
			time.Sleep(time.Hour)
		}
	})
}

// One scheduler leads, and one executes a run, whatever the defaults of the Locker are.
func TestDefaultsAreNotShared(t *testing.T) {
	shared := locker.WithDefaults(locker.Shared())
	l := lockertest.New(shared)
	defer l.Close()
	other := l.Join(shared)
	defer other.Close()
	for i, l := range []locker.Locker{l, other} {
		e, err := lockergocron.NewElector(l, "leader")
		if err != nil {
			t.Fatal(err)
		}
		if err := e.IsLeader(t.Context()); (err == nil) != (i == 0) || i > 0 && !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("scheduler %d of two: IsLeader is %v", i+1, err)
		}
		jobs, err := lockergocron.NewLocker(l, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Lock(t.Context(), "job"); (err == nil) != (i == 0) || i > 0 && !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("scheduler %d of two: Lock is %v", i+1, err)
		}
	}
}

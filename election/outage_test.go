package election_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
)

// StepDown in an outage takes the bound for a release, though the leader holds two locks.
func TestStepDownInAnOutage(t *testing.T) {
	for name, begin := range map[string]func(*lockertest.Locker){
		"down":  (*lockertest.Locker).Down,
		"hangs": (*lockertest.Locker).Hang,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := lockertest.New()
				defer l.Close()
				term, err := candidate(t, l).Campaign(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // it is announced
				begin(l)
				begun := time.Now()
				if err := term.StepDown(t.Context()); err == nil {
					t.Error("the release was confirmed")
				}
				if d := time.Since(begun); d > locker.DefaultReleaseTimeout+200*time.Millisecond {
					t.Errorf("it took %v", d)
				}
				l.Heal()
			})
		})
	}
}

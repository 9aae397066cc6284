package gocron_test

import (
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	lockergocron "github.com/lockerproject/locker/adapter/gocron"
	"github.com/lockerproject/locker/lockertest"
)

// Many jobs that are due while the store hangs are skipped together, not one after the
// other, each after the whole bound for an answer.
func TestElectorAsksOnceAtATime(t *testing.T) {
	l := lockertest.New(locker.WithAnswerTimeout(time.Second))
	defer l.Close()
	e, err := lockergocron.NewElector(l, "leader")
	if err != nil {
		t.Fatal(err)
	}
	l.Hang()
	begun := time.Now()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if e.IsLeader(t.Context()) == nil {
				t.Error("leads without a store")
			}
		})
	}
	group.Wait()
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("eight jobs were skipped after %v", took)
	}
	l.Heal()
	if err := e.IsLeader(t.Context()); err != nil {
		t.Error(err)
	}
	l.AssertHeld(t, "leader")
}

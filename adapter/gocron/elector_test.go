package gocron_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
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

// Resign with a context that has ended still ends the leadership that a job is about to get.
func TestResignWhileAJobTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		defer l.Close()
		e, err := lockergocron.NewElector(l, "leader")
		if err != nil {
			t.Fatal(err)
		}
		l.Slow(time.Second)
		led := make(chan error, 1)
		go func() { led <- e.IsLeader(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := e.Resign(ctx); err != nil {
			t.Error(err)
		}
		if err := <-led; err != nil {
			t.Error(err)
		}
		l.AssertFree(t)
	})
}

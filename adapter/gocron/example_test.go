package gocron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"

	"github.com/lockerproject/locker"
	lockergocron "github.com/lockerproject/locker/adapter/gocron"
	"github.com/lockerproject/locker/driver/memory"
)

// Three schedulers, here in one process, that all begin with the job: one does it.
func ExampleNewLocker() {
	l := locker.New(memory.New()) // in reality locker.Open(ctx, "redis://…"), one for each process
	defer l.Close()
	jobs, err := lockergocron.NewLocker(l, 50*time.Second) // of a period of a minute
	if err != nil {
		fmt.Println(err)
	}
	done, left := each(3, gocron.WithDistributedLocker(jobs))
	fmt.Println("done:", done, "left to another:", left)
	// Output: done: 1 left to another: 2
}

// The scheduler of one process does all jobs, until it resigns or ends.
func ExampleNewElector() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	mine, _ := lockergocron.NewElector(l, "report-leader")
	other, _ := lockergocron.NewElector(l, "report-leader") // of another process
	fmt.Println(mine.IsLeader(ctx) == nil, other.IsLeader(ctx) == nil)
	mine.Resign(ctx)
	fmt.Println(other.IsLeader(ctx) == nil, mine.IsLeader(ctx) == nil)

	done, _ := each(1, gocron.WithDistributedElector(other))
	fmt.Println("done:", done)
	// Output:
	// true false
	// true false
	// done: 1
}

// each starts n schedulers with a job that is due at once, and stops them when each
// has done it or left it to another.
func each(n int, opt gocron.SchedulerOption) (done, left int) {
	runs, skips := make(chan bool), make(chan bool)
	for range n {
		s, err := gocron.NewScheduler(opt)
		if err != nil {
			fmt.Println(err)
			return 0, 0
		}
		defer s.Shutdown()
		s.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(func() { runs <- true }),
			gocron.WithName("report"),
			gocron.WithStartAt(gocron.WithStartImmediately()),
			gocron.WithEventListeners(gocron.AfterLockError(func(uuid.UUID, string, error) { skips <- true })))
		s.Start()
	}
	for done+left < n {
		select {
		case <-runs:
			done++
		case <-skips:
			left++
		}
	}
	return done, left
}

// Package gocron lets several schedulers of [github.com/go-co-op/gocron/v2] share their
// jobs, on any store of package locker. With a Locker one of them executes each run of a
// job. With an Elector one of them executes all jobs until it ends.
//
//	import (
//		"github.com/go-co-op/gocron/v2"
//		lockergocron "github.com/lockerproject/locker/adapter/gocron"
//	)
//
//	jobs, err := lockergocron.NewLocker(l, 50*time.Second)
//	…
//	s, err := gocron.NewScheduler(gocron.WithDistributedLocker(jobs))
//	…
//	s.NewJob(gocron.CronJob("* * * * *", false), gocron.NewTask(report), gocron.WithName("report"))
//
// # Which one
//
// A [Locker] distributes the jobs over the schedulers, with requests to the store at each
// run. Its period must be longer than the clocks differ: see NewLocker.
//
// An [Elector] keeps all jobs on one scheduler, whatever the clocks. When the leader
// changes, a run that is due at about that time may be executed twice or not at all, since
// clocks differ.
//
// # What neither promises
//
// gocron does not notify a job of the loss of its lock: a run that was paused, or cut off
// from the store, for longer than its lease goes on, while another scheduler may begin the
// next. A job that must not do that acquires a lock itself, with locker.Do, whose context
// ends, and passes the fencing token to the resources that it changes.
//
// A run is skipped if the store is unavailable: gocron calls its AfterLockError listeners
// with an error that wraps locker.ErrUnavailable. If another scheduler executes the run,
// the error wraps locker.ErrNotAcquired. With an Elector gocron skips silently.
package gocron

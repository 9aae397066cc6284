// Package gocron lets several schedulers of [github.com/go-co-op/gocron/v2] share
// their jobs, over any store of package locker: with its Locker each run of a job is
// done by one of them; with its Elector all jobs are done by the same one, until
// that ends.
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
// A [Locker] spreads the jobs over the schedulers, and asks the store at each run.
// It needs a period that is longer than the clocks differ: see NewLocker.
//
// An [Elector] keeps all jobs on one scheduler, whatever the clocks, and asks the
// store only on those that do not lead. When the leader changes, a run that is
// due at about that time may be done twice or not at all, since clocks differ.
//
// # What neither promises
//
// gocron does not tell a job of the loss of its lock: a run that was paused, or cut
// off from the store, for longer than its lease goes on, while another scheduler
// may begin the next. A job that must not do that takes a lock of its own, with
// locker.Do, whose context ends, and hands its fencing token to what it writes to.
//
// A run that finds the store away is skipped; gocron tells its AfterLockError
// listeners of that, with an error that wraps locker.ErrUnavailable. One that is
// skipped because another scheduler does it wraps locker.ErrNotAcquired. With an
// Elector gocron skips in silence.
package gocron

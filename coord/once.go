package coord

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker"
)

// Once runs fn unless somebody has begun to run it, under the same name, less than
// period ago; ran reports whether it did. The period counts from the moment when
// the store granted the lock, so the clocks of the machines do not matter. It lasts
// also when fn returns earlier or fails, when the Locker is closed, and when the
// process dies: at most one run begins in a period, and a run that fails or dies is
// not repeated before the next. If fn runs for longer than the period, the lock is
// renewed, and nobody else begins meanwhile. If the process dies after the period has
// passed, somebody else can begin when the lease ends, which is as long as the period
// and at most 30 s, unless the safety margin of the Locker is longer than that.
//
// If every instance starts a job by its own clock, for example every minute, choose
// a period that is much longer than the clocks differ, and shorter than a minute by
// as much: 30 seconds.
//
// fn gets the context of the lock, which ends when the lock is lost, as with
// locker.Do. The error is fn's or the acquisition's. If it is the acquisition's,
// fn has not run: ErrUnavailable means that the store did not answer, and
// ErrUnsupported that the store cannot keep a lock for the period.
func Once(ctx context.Context, l locker.Locker, name string, period time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	switch {
	case l == nil:
		return false, invalid("once", name, "the Locker is nil")
	case period < time.Millisecond:
		return false, invalid("once", name, "period %v: want %v or more", period, time.Millisecond)
	case fn == nil:
		return false, invalid("once", name, "no function to run")
	}
	job := locker.NewMutex(l, name, locker.WithoutDefaults(), locker.WithMinHold(period), locker.WithWait(0), locker.WithoutReentry())
	run := func(ctx context.Context) error {
		ran = true
		return fn(ctx)
	}
	err = job.Do(ctx, run, locker.WithTTL(min(period, locker.DefaultTTL)))
	if !ran && errors.Is(err, locker.ErrInvalidOption) { // the safety margin of the Locker is longer than that
		err = job.Do(ctx, run, locker.WithTTL(period))
	}
	if !ran && errors.Is(err, locker.ErrNotAcquired) && !errors.Is(err, locker.ErrUnavailable) {
		return false, nil
	}
	return ran, err
}

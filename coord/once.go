package coord

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker"
)

// Once runs fn unless somebody has begun to run it, under the same name, less than
// period ago; ran says whether it did. The period counts from the moment when
// the lock was granted, by the store, so the clocks of the machines do not
// matter. It is kept when fn returns earlier or fails, when the Locker is
// closed, and when the process dies: at most one run begins in a period, and a
// run that fails or dies is not repeated before the next. While fn runs longer
// than that, nobody else begins; a process that dies then is noticed after
// the period or 30 s, whichever is shorter.
//
// A job that every instance starts by its own clock, every minute say, wants a
// period a good deal longer than the clocks differ, and shorter than a minute by
// as much: 30 seconds.
//
// fn gets the context of the lock, which ends when the lock is lost, as with
// locker.Do. The error is that of fn or of the acquisition: ErrUnavailable if
// the store did not answer, and then fn has not run. A store that cannot keep a
// lock for the period answers ErrUnsupported.
func Once(ctx context.Context, l locker.Locker, name string, period time.Duration, fn func(ctx context.Context) error) (ran bool, err error) {
	switch {
	case l == nil:
		return false, invalid("once", name, "the Locker is nil")
	case period < time.Millisecond:
		return false, invalid("once", name, "period %v: want %v or more", period, time.Millisecond)
	case fn == nil:
		return false, invalid("once", name, "no function to run")
	}
	err = locker.NewMutex(l, name).Do(ctx, func(ctx context.Context) error { // whatever the Locker's defaults are
		ran = true
		return fn(ctx)
	}, locker.WithMinHold(period), locker.WithTTL(min(period, locker.DefaultTTL)), locker.WithWait(0), locker.WithoutReentry())
	if !ran && errors.Is(err, locker.ErrNotAcquired) && !errors.Is(err, locker.ErrUnavailable) {
		return false, nil
	}
	return ran, err
}

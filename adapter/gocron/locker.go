package gocron

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockerproject/locker"
)

// Locker is a gocron.Locker. The lock of a job has the job's name: give each a
// name, with gocron.WithName, that is the same in all schedulers.
type Locker struct {
	l    locker.Locker
	opts []locker.Option
}

var _ gocron.Locker = (*Locker)(nil)

// NewLocker returns a gocron.Locker on l, whose locks are acquired with opts.
//
// minHold is the time after the beginning of a run in which no scheduler begins
// another run of the same job, even if the first is over (locker.WithMinHold).
// Without it every scheduler in turn does a short job, since no two fire at the same
// instant. It is shorter than the job's period, and longer than the schedulers are
// apart. For a job at set times that is the difference of their clocks. For a
// gocron.DurationJob, which each scheduler counts from its own start, it may be up
// to the period. So nearly the whole period is right for both: 50 s for a job of every
// minute. Jobs whose periods differ much get a Locker each, with
// gocron.WithDistributedJobLocker.
//
// A nil l, and a minHold that is not greater than zero, are locker.ErrInvalidOption; so are
// invalid opts, from each Lock.
func NewLocker(l locker.Locker, minHold time.Duration, opts ...locker.Option) (*Locker, error) {
	if l == nil {
		return nil, errNil
	}
	if minHold <= 0 {
		return nil, fmt.Errorf("%w: minimum hold %v: want more than zero, and less than the period of the job",
			locker.ErrInvalidOption, minHold)
	}
	return &Locker{l: l, opts: with(opts, locker.WithMinHold(minHold), locker.WithoutReentry())}, nil
}

// with returns opts, and after them last, which the caller cannot change.
func with(opts []locker.Option, last ...locker.Option) []locker.Option {
	return append(append([]locker.Option(nil), opts...), last...)
}

var errNil = fmt.Errorf("%w: the locker is nil", locker.ErrInvalidOption)

// Lock takes the lock of a job for one run, or returns an error at once if another
// scheduler has it.
func (j *Locker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	k, err := locker.NewMutex(j.l, key, j.opts...).TryLock(ctx) // exclusive, whatever the Locker's defaults are
	if err != nil {
		return nil, err
	}
	return run{k}, nil
}

// run is the lock of one run.
type run struct{ k *locker.Lock }

// Unlock releases the lock. It is passed on when the minimum hold is over. If the store does
// not answer, Unlock returns after the bound for a release (locker.WithReleaseTimeout, 5 s by
// default), and gocron does not end the run before that.
func (r run) Unlock(ctx context.Context) error { return r.k.Release(ctx) }

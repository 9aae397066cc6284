package sqlqueue

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// A process that uses a queue removes expired tickets that are in its way. The others (of names that nobody uses again,
// and of waiters after a live holder) are removed in the background, by one of the processes that have used the driver and
// not closed it. A sweep reads all tickets, so it must not be done once for each process.
//
// SweepEvery is the interval of the sweeps of one process, and up to a tenth longer, so that processes do not sweep at once.
const (
	SweepEvery = 45 * time.Second
	sweepBound = 5 * time.Second
	sweepTurn  = 10 * time.Second // by then another process sweeps, if that whose turn it is has crashed

	// If a row is in use when a sweep finds it, or a passing error occurs, the sweep is repeated: D18 allows a minute,
	// so the next regular sweep may be too late. A guarded transaction may last for hours.
	sweepAgain = 2 * time.Second
	sweepTries = 3

	// One in so many processes sweeps as soon as it has a ticket. If all waited first, programs that run for moments
	// would never sweep, and each may leave an expired lease.
	sweepOdds = 10
)

// StartSweeps starts the background task, unless it runs. The first request for a ticket that is answered does so.
func StartSweeps(e *Engine) { e.start(&e.book.sweeping, e.sweepOnAndOff) }

func (e *Engine) sweepOnAndOff() {
	if rand.N(sweepOdds) == 0 {
		e.sweepUntilDone() // not in turn: a program that ends at once might take the turn, and not sweep
	}
	for wait := e.opts.SweepEvery; retry.Sleep(e.life, wait+rand.N(e.opts.SweepEvery/10), nil); {
		wait = SweepInTurn(e)
	}
}

// SweepInTurn sweeps, unless another process does or has done so. It returns when a sweep is due again.
func SweepInTurn(e *Engine) time.Duration {
	switch left, err := e.sweepTurn(sweepTurn, false); {
	case err != nil:
		return e.opts.SweepEvery
	case left > 0:
		return min(left, e.opts.SweepEvery)
	}
	if begun := time.Now(); e.sweepUntilDone() {
		_, _ = e.sweepTurn(max(0, e.opts.SweepEvery-time.Since(begun)), true) // else another sweeps soon
	}
	return e.opts.SweepEvery
}

// sweepTurn asks for the turn to sweep, or gives it up. It returns how long others have it.
func (e *Engine) sweepTurn(life time.Duration, done bool) (left time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(e.life, haste{}, sweeping), sweepBound)
	defer cancel()
	return e.store.SweepTurn(ctx, life, done)
}

// sweepUntilDone sweeps again soon if something could not be removed. After some tries it is left to the next sweep. It
// reports false if no sweep has got to the end.
func (e *Engine) sweepUntilDone() (swept bool) {
	for range sweepTries {
		busy, err := Sweep(e.life, e)
		swept = swept || err == nil
		if err == nil && busy == 0 || !retry.Sleep(e.life, sweepAgain, nil) {
			break
		}
	}
	return swept
}

// Sweep removes expired tickets, from some queues with each request. After Close it has CloseBound to finish one.
func Sweep(ctx context.Context, e *Engine) (busy int64, err error) {
	until, cancel := context.WithTimeout(context.WithValue(context.WithoutCancel(ctx), haste{}, sweeping), sweepBound)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(CloseBound, cancel) })
	defer stop()
	for last, more := "", true; more && ctx.Err() == nil; more = last != "" {
		last, err = Repeat(until, e, Twice, func() (string, error) {
			next, n, err := e.store.Sweep(until, last)
			busy += n
			return next, err
		})
		if err != nil {
			return busy, err
		}
	}
	return busy, nil
}

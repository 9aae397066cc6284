// Package coord coordinates processes by tickets alone, on any store, through a
// [locker.Locker]: a [Latch] that opens when n parties have counted down, a
// [Barrier] at which n parties wait for each other again and again, and [Once],
// which runs a function once per period.
//
// All that they keep in the store is tickets, which end by themselves: nothing has to
// be repaired after a process has died, and nothing has to be deleted. Each type
// documents what the death of a party means for the others.
//
// # Requests
//
// A ticket is granted when others end, so a queue cannot notify a party that others
// have arrived: Latch.Wait and Barrier.Wait poll. Of all parties that wait on one
// name, one at a time polls often, at intervals that grow from 20 ms to 250 ms. The
// others wait for a lock that it holds, and poll every two seconds. When its wait is
// over it releases the lock, and the others follow one after the other. This is meant
// for phases of seconds and more, with tens of parties, not for inner loops.
//
// A store that is unavailable does not end Wait; only ctx does. A party that is
// paused for longer than its lease no longer counts.
//
// Beside its own name, a Latch or Barrier uses locks whose names are the name
// followed by "#poll" and "#trip".
package coord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

const (
	pollSuffix = "#poll"
	tripSuffix = "#trip"
	maxName    = 512 - len(pollSuffix)

	pollTTL  = 5 * time.Second // of the lock of the party that polls often
	pollWait = 2 * time.Second // how often the other parties poll

	pauseFirst = 20 * time.Millisecond
	pauseMost  = 250 * time.Millisecond
)

func invalid(what, name, format string, args ...any) error {
	return fmt.Errorf("%s %q: %w: "+format, append([]any{what, name, locker.ErrInvalidOption}, args...)...)
}

// check validates the arguments of NewLatch and NewBarrier.
func check(what string, l locker.Locker, name string, n int) error {
	switch {
	case l == nil:
		return invalid(what, name, "the Locker is nil")
	case name == "" || len(name) > maxName:
		return fmt.Errorf("%s %q: %w: want 1 to %d bytes", what, name, locker.ErrInvalidName, maxName)
	case n <= 0:
		return invalid(what, name, "%d parties: want one or more", n)
	}
	return nil
}

// await calls try until it reports true or ctx ends. Of all calls of await with the
// same lock, the holder of the lock polls often. The lease of that lock is as long as
// longest if the safety margin of the Locker is longer than pollTTL.
func await(ctx context.Context, l locker.Locker, lock string, longest time.Duration, try func(ctx context.Context) (bool, error)) error {
	w := &waiter{try: try}
	poller := locker.NewMutex(l, lock)
	ttl := pollTTL
	for {
		if w.once(ctx) {
			return w.err
		}
		err := poller.Do(ctx, w.poll, locker.WithoutDefaults(), locker.WithWait(pollWait), locker.WithTTL(ttl), locker.WithoutReentry())
		switch {
		case w.over:
			return w.err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, locker.ErrInvalidOption) && ttl < longest:
			ttl = longest
		case errors.Is(err, locker.ErrUnavailable):
			retry.Sleep(ctx, pauseMost, nil)
		case err == nil, errors.Is(err, locker.ErrNotAcquired), errors.Is(err, locker.ErrLost):
		default:
			return err
		}
	}
}

// waiter is one call of await.
type waiter struct {
	try  func(ctx context.Context) (bool, error)
	over bool
	err  error
}

// once tries once, and reports whether the wait is over. An outage does not end it.
func (w *waiter) once(ctx context.Context) bool {
	done, err := w.try(ctx)
	if done || err != nil && ctx.Err() == nil && !errors.Is(err, locker.ErrUnavailable) {
		w.over, w.err = true, err
	}
	return w.over
}

// poll tries until the wait is over, or until the lock's ctx ends. await finds out why
// it has ended: the caller's context may live.
func (w *waiter) poll(ctx context.Context) error {
	for pause := pauseFirst; !w.once(ctx); pause = min(2*pause, pauseMost) {
		if !retry.Sleep(ctx, pause, nil) {
			break
		}
	}
	return nil
}

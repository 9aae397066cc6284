// Package coord coordinates processes by tickets alone, on any store, through a
// [locker.Locker]: a [Latch] that opens when n parties have counted down, a
// [Barrier] at which n parties wait for each other again and again, and [Once],
// which runs a function once per period.
//
// Nothing of them is in the store but tickets, which end by themselves: a process
// that dies leaves nothing that has to be repaired, and nothing has to be deleted
// afterwards. What the death of a party means for the others is said at each
// type.
//
// # Requests
//
// Tickets are granted when others end, so nobody can wait in the queue for others to
// come: Latch.Wait and Barrier.Wait poll. Of all who wait on one name, one at a
// time polls often, at intervals that grow from 20 ms to 250 ms; the others wait
// for the lock that it holds, and poll every two seconds. When it has seen what all
// wait for, it passes the lock on, and one after the other sees it. That is meant for
// phases of seconds and more, among tens of parties, not for inner loops.
//
// A store that is unavailable ends no Wait, only its ctx does. A party that is
// paused longer than its lease has left.
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
)

const (
	pollSuffix = "#poll"
	tripSuffix = "#trip"
	maxName    = 512 - len(pollSuffix)

	pollTTL  = 5 * time.Second // of the lock of the one that polls often
	pollWait = 2 * time.Second // after which the others poll, though it may have died

	pauseFirst = 20 * time.Millisecond
	pauseMost  = 250 * time.Millisecond
)

func invalid(what, name, format string, args ...any) error {
	return fmt.Errorf("%s %q: %w: "+format, append([]any{what, name, locker.ErrInvalidOption}, args...)...)
}

// check is what Latch and Barrier have in common.
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

// await returns when try has reported true, with its error, or with that of
// ctx. Of all who await with the same lock, its holder polls often.
func await(ctx context.Context, l locker.Locker, lock string, try func(ctx context.Context) (bool, error)) error {
	w := &waiter{try: try}
	for {
		if w.once(ctx) {
			return w.err
		}
		err := locker.Do(ctx, l, lock, w.poll, locker.WithWait(pollWait), locker.WithTTL(pollTTL),
			locker.WithoutReentry(), locker.WithMinHold(0))
		switch {
		case w.over:
			return w.err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, locker.ErrUnavailable):
			_ = sleep(ctx, pauseMost)
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

// once tries once, and reports whether the wait is over. An outage passes.
func (w *waiter) once(ctx context.Context) bool {
	done, err := w.try(ctx)
	if done || err != nil && ctx.Err() == nil && !errors.Is(err, locker.ErrUnavailable) {
		w.over, w.err = true, err
	}
	return w.over
}

// poll tries until the wait is over or ctx ends.
func (w *waiter) poll(ctx context.Context) error {
	for pause := pauseFirst; !w.once(ctx); pause = min(2*pause, pauseMost) {
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits for d; it returns the error of ctx when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

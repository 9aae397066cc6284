package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// Run campaigns and calls lead whenever the candidate is elected, in the
// caller's goroutine. The ctx of lead ends when the leadership does, and
// locker.FromContext finds the lock in it.
//
// When lead returns, Run gives up the leadership, if it still has it, and
//
//   - campaigns again, at the tail of the queue and without a pause, after nil, after
//     a leadership that was lost, and after one that Term.StepDown ended;
//   - returns nil after ErrResign;
//   - returns any other error of lead.
//
// If the store does not answer, giving up takes the bound for a release
// (locker.WithReleaseTimeout, 5 s by default), before Run returns or campaigns again.
//
// Run returns when ctx ends, with its error or lead's. It goes on while the store
// is unavailable. It returns errors that do not go away by themselves, such as ErrClosed
// or a wrong password. Observers of the Locker ([locker.WithObserver]) are notified of
// every failed campaign and of every loss.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term *Term) error) error {
	if lead == nil {
		return fmt.Errorf("election %q: %w: no function to lead", e.name, locker.ErrInvalidOption)
	}
	for {
		t, err := e.elected(ctx)
		if err != nil {
			return err
		}
		over, err := e.serve(ctx, t, lead)
		switch {
		case errors.Is(err, ErrResign):
			return nil
		case ctx.Err() != nil && err == nil:
			return ctx.Err()
		case ctx.Err() != nil, err != nil && !over:
			return err
		}
	}
}

// elected campaigns until the candidate is elected.
func (e *Election) elected(ctx context.Context) (*Term, error) {
	pause := newBackoff()
	for {
		t, err := e.campaign(ctx, true)
		if err == nil || !isTransient(err) {
			return t, err
		}
		if !retry.Sleep(ctx, pause.Next(), nil) {
			return nil, fmt.Errorf("%w: %w", ctx.Err(), err)
		}
	}
}

// serve calls lead for one term, and reports whether the term was over before
// lead returned.
func (e *Election) serve(ctx context.Context, t *Term, lead func(context.Context, *Term) error) (over bool, err error) {
	defer func() { _ = t.finish(ctx) }() // a ticket whose release is not confirmed is removed in the background
	ctx = t.Context(ctx)
	defer e.watch(ctx, t.Token())()
	err = lead(ctx, t)
	return t.Err() != nil, err
}

// watch calls overrun if returned is not called in time after the end of ctx.
func (e *Election) watch(ctx context.Context, token uint64) (returned func()) {
	if e.overrun == nil {
		return func() {}
	}
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-ctx.Done():
		case <-done:
			return
		}
		timer := time.NewTimer(e.allowed)
		defer timer.Stop()
		select {
		case <-timer.C:
			e.overrun(token)
		case <-done:
		}
	})
	return func() {
		close(done)
		group.Wait()
	}
}

// isTransient reports whether the next try may succeed.
func isTransient(err error) bool {
	return errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrNotAcquired)
}

// The pauses between two tries.
const (
	pauseFirst = 50 * time.Millisecond
	pauseMost  = 5 * time.Second
)

func newBackoff() retry.Backoff { return retry.Backoff{First: pauseFirst, Most: pauseMost} }

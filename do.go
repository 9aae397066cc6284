package locker

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// doWait is how long Do waits for the release, so that it returns within 100 ms.
const doWait = 70 * time.Millisecond

// Do runs fn while holding name. The ctx of fn ends when the lock is lost.
// FromContext finds the Lock, and its token, in that ctx, and Acquire under it
// re-enters, also in goroutines that fn starts with it (see Lock.Context). Do waits
// for fn and then releases the lock, also when fn panics.
//
// Do returns the error of the acquisition or, once fn has run, the error of fn. If the lock
// has ended before fn begins, fn does not run (see Lock.Do). If it was lost while fn ran,
// Do returns a *DoError, which matches ErrLost and fn's error.
//
// Do returns within 100 ms after fn. If the store takes longer to answer the release, or
// does not answer, that is no failure of the work: the release goes on in the background,
// and observers are notified of its outcome.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context) error, opts ...Option) error {
	k, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	return k.Do(ctx, fn)
}

// Do runs fn while k is held, and then releases k, as the function Do does after it has
// acquired the lock. If k has ended already, fn does not run: the error is ErrLost or
// ErrReleased, and no *DoError.
func (k *Lock) Do(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	if ended := k.Err(); ended != nil {
		_ = k.releaseSoon(ctx) // of a group, what is left of it
		return k.Locks()[0].c.fail("do", k.Name(), ended)
	}
	defer func() {
		if lost := k.releaseSoon(ctx); errors.Is(lost, ErrLost) {
			err = &DoError{Result: err, Lost: lost}
		}
	}()
	return fn(k.Context(ctx))
}

// DoError is the error of Do, and of Lock.Do, if the lock was lost while the function ran.
// Whether its work counts is not known from that. A fence decides: if the work was
// committed with the lock's token, on a resource that refuses older tokens (package
// fence), it counts, and a Result of nil is a success:
//
//	var lost *locker.DoError
//	if errors.As(err, &lost) {
//		err = lost.Result // the work is fenced
//	}
type DoError struct {
	Result error // what the function returned
	Lost   error // matches ErrLost
}

// Error implements error.
func (e *DoError) Error() string {
	if e.Result == nil {
		return fmt.Sprintf("%v while the function ran, which returned no error", e.Lost)
	}
	return fmt.Sprintf("%v: %v", e.Result, e.Lost)
}

// Unwrap returns both errors.
func (e *DoError) Unwrap() []error {
	if e.Result == nil {
		return []error{e.Lost}
	}
	return []error{e.Result, e.Lost}
}

// releaseSoon is Release that waits for the store for doWait at most.
//
// A loss that is known by then is its error, whatever the store has answered.
func (k *Lock) releaseSoon(ctx context.Context) error {
	known := k.Err()
	answered, err := waitForRelease(doWait, func() ([]*lease, error) { return k.releaseQuietly(ctx) })
	if !answered && errors.Is(known, ErrLost) {
		return k.Locks()[0].c.fail("release", k.Name(), known)
	}
	return err
}

// waitForRelease waits for a release for so long at most. After that the release goes on in the
// background, as do the events of the leases that it has ended.
func waitForRelease(most time.Duration, release func() (ended []*lease, err error)) (answered bool, err error) {
	type outcome struct {
		ended []*lease
		err   error
	}
	done, gone := make(chan outcome), make(chan struct{})
	go func() {
		var o outcome
		o.ended, o.err = release()
		select {
		case done <- o:
		case <-gone:
			for _, l := range o.ended {
				l.deliverLater()
				l.core.ends.Done()
			}
		}
	}()
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case o := <-done:
		deliverEach(o.ended, (*lease).deliverEnd)
		return true, o.err
	case <-timer.C:
		close(gone)
		return false, nil
	}
}

// releaseQuietly is Release without events: the caller delivers those of the leases that it
// has ended.
func (k *Lock) releaseQuietly(ctx context.Context) (ended []*lease, err error) {
	if k.lease == nil {
		return k.releaseGroup(ctx)
	}
	last, err := k.release(ctx, time.Time{})
	if last {
		ended = []*lease{k.lease}
	}
	return ended, err
}

// lockKey is the key under which a context has the innermost lock.
type lockKey struct{}

// FromContext returns the innermost lock whose Context, or Do, made ctx. The lock
// may have ended meanwhile: see Lock.Err. For several locks (AcquireAll) it is the
// group.
func FromContext(ctx context.Context) (*Lock, bool) {
	k, ok := ctx.Value(lockKey{}).(*Lock)
	return k, ok
}

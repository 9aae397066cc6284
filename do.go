package locker

import (
	"context"
	"errors"
)

// Do runs fn while holding name. The ctx of fn ends when the lock is lost.
// FromContext finds the Lock, and its token, in that ctx, and Acquire under it
// re-enters, also in goroutines that fn starts with it (see Lock.Context). Do waits
// for fn and then releases the lock, also when fn panics.
//
// Do returns the error of the acquisition or, once fn has run, the error of fn,
// joined with ErrLost if the lock was lost meanwhile. If the store does not answer
// the release, that is no failure of the work: observers are notified, and the
// ticket is removed in the background.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context) error, opts ...Option) (err error) {
	k, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() {
		if lost := k.Release(ctx); errors.Is(lost, ErrLost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(k.Context(ctx))
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

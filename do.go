package locker

import (
	"context"
	"errors"
)

// Do runs fn while holding name. The ctx that fn gets ends when the lock is
// lost, and re-enters. Do waits for fn and releases the lock, also when fn
// panics. Its error wraps that of Acquire, or those of fn and of Release: a
// lock that was lost while fn ran is ErrLost even if fn returned nil.
func Do(ctx context.Context, l Locker, name string, fn func(ctx context.Context) error, opts ...Option) (err error) {
	k, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Release(ctx)) }()
	return fn(k.Context(ctx))
}

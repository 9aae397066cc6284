package stripe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"github.com/lockerproject/locker"
)

// ErrEmpty is what the function of [Segments.Do] returns when its segment has
// nothing left, and what Do returns when no segment has.
var ErrEmpty = errors.New("the segment is empty")

// Segments are the locks of a resource that is divided into n parts: some tens at most,
// since a caller that finds none free has tried each. Make one Segments for each resource
// and process, and keep it: it knows which segment the process used last. All methods may
// be called from many goroutines at once.
type Segments struct {
	set
	l    locker.Locker
	last atomic.Int64 // the segment that was granted last
	turn atomic.Int64 // where the next one waits
}

// Segment is a lock on one segment.
type Segment struct {
	*locker.Lock
	Index int // which one, from 0
}

// NewSegments returns the segments name/0 … name/n-1 on l, 1 ≤ n ≤ Most. A nil l
// and an n out of range are locker.ErrInvalidOption; a name that no Locker would
// take, locker.ErrInvalidName.
func NewSegments(l locker.Locker, name string, n int) (*Segments, error) {
	if l == nil {
		return nil, fmt.Errorf("%w: the locker is nil", locker.ErrInvalidOption)
	}
	set, err := newSet(name, n)
	if err != nil {
		return nil, err
	}
	s := &Segments{set: set, l: l}
	s.last.Store(rand.Int64N(int64(n))) //nolint:gosec // not a secret: it spreads processes
	s.turn.Store(rand.Int64N(int64(n))) //nolint:gosec // the same
	return s, nil
}

// TryAcquire takes a segment that is free now: the one that this process used last
// or, if that is held, the next free one. If none is free, it returns
// locker.ErrNotAcquired and leaves no ticket.
func (s *Segments) TryAcquire(ctx context.Context, opts ...locker.Option) (*Segment, error) {
	return s.try(ctx, s.all(), opts)
}

// Acquire takes a segment that is free, as TryAcquire does. If none is, it queues for one
// of them, in turn, and tries the others at intervals that grow from 20 ms to a second. So
// if a segment is free and nobody is queued for it, Acquire waits a second at most.
// Acquire returns within 100 ms after its wait limit (locker.WithWait) or the end of ctx.
//
// Options, and the defaults of the Locker, apply as to locker.Client.Acquire: under the
// context of a segment that is held, and for an explicit owner (locker.WithOwner), Acquire
// may re-enter that one.
func (s *Segments) Acquire(ctx context.Context, opts ...locker.Option) (*Segment, error) {
	return s.acquire(ctx, s.all(), opts)
}

// Do runs fn while holding a segment, with its index. When fn returns ErrEmpty, Do
// releases the segment and goes on with another one, which may be busy now, until each
// was tried once. Then it returns ErrEmpty. A wait limit counts for each anew. In all else
// it is as locker.Do.
func (s *Segments) Do(ctx context.Context, fn func(ctx context.Context, segment int) error, opts ...locker.Option) error {
	for left := s.all(); len(left) > 0; {
		k, err := s.acquire(ctx, left, opts)
		if err != nil {
			return err
		}
		err = k.run(ctx, fn)
		if !errors.Is(err, ErrEmpty) || errors.Is(err, locker.ErrLost) {
			return err
		}
		left = slices.DeleteFunc(left, func(i int) bool { return i == k.Index })
	}
	return fmt.Errorf("%w: as all %d of %q are", ErrEmpty, s.n, s.name)
}

// run runs fn and releases the segment, as locker.Do does.
func (k *Segment) run(ctx context.Context, fn func(ctx context.Context, segment int) error) error {
	return k.Do(ctx, func(ctx context.Context) error { return fn(ctx, k.Index) })
}

package stripe

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/whole"
)

// The intervals at which a waiter tries the segments that it is not queued for: the
// first and the longest.
const (
	pollFirst = 20 * time.Millisecond
	pollMost  = time.Second
)

// all returns all indexes, in order.
func (s *Segments) all() []int {
	all := make([]int, s.n)
	for i := range all {
		all[i] = i
	}
	return all
}

// granted makes a Segment of what the Locker has answered for segment i.
func (s *Segments) granted(i int, k *locker.Lock, err error) (*Segment, error) {
	if err != nil {
		return nil, err
	}
	s.last.Store(int64(i))
	return &Segment{Lock: k, Index: i}, nil
}

// try takes one of the segments that is free now. It begins with the segment that was
// granted last. among is in order.
func (s *Segments) try(ctx context.Context, among []int, opts []locker.Option) (*Segment, error) {
	first, _ := slices.BinarySearch(among, int(s.last.Load()))
	err := locker.ErrNotAcquired
	for n := range among {
		i := among[(first+n)%len(among)]
		var k *locker.Lock
		k, err = s.l.TryAcquire(ctx, s.Name(i), opts...)
		if !taken(err) {
			return s.granted(i, k, err)
		}
	}
	return nil, err
}

// taken reports whether an error means that somebody else has the lock.
func taken(err error) bool {
	return errors.Is(err, locker.ErrNotAcquired) && !errors.Is(err, locker.ErrUnavailable)
}

// acquire takes one of the segments, and waits for it if need be.
func (s *Segments) acquire(ctx context.Context, among []int, opts []locker.Option) (*Segment, error) {
	ctx, end := whole.Call(ctx)
	defer end()
	if k, err := s.try(ctx, among, opts); !taken(err) {
		return k, err
	}
	at := int(s.turn.Add(1) % int64(len(among)))
	return s.wait(ctx, among[at], slices.Delete(slices.Clone(among), at, at+1), opts)
}

// errObserver stays if an observer has panicked, or ended the goroutine: the caller ends so too.
var errObserver = errors.New("an observer has ended the acquisition")

// wait queues for segment i, and takes one of the others if it turns out to be
// free before.
func (s *Segments) wait(ctx context.Context, i int, others []int, opts []locker.Option) (got *Segment, failed error) {
	queued, leave := context.WithCancel(ctx)
	defer leave()
	looking, stop := context.WithCancel(ctx)
	defer stop()
	var (
		k        *locker.Lock
		err      = errObserver
		panicked any
		answer   = make(chan struct{})
	)
	go func() {
		defer close(answer)
		defer stop() // ends a try that is under way
		defer func() { panicked = recover() }()
		k, err = s.l.Acquire(queued, s.Name(i), opts...)
	}()
	complete := false
	defer func() { // an observer has ended this call, or the release of the other
		if !complete && got != nil {
			drop(ctx, got.Lock)
		}
	}()
	defer func() { // also when an observer panics
		leave()
		<-answer
		if err == nil && (got == nil || got.Lock != k) { // granted meanwhile: one too many
			drop(ctx, k)
		}
		if complete = !errors.Is(err, errObserver); complete {
			return
		}
		if panicked == nil {
			runtime.Goexit()
		}
		panic(panicked)
	}()
	for pause := pollFirst; ; pause = min(2*pause, pollMost) {
		timer := time.NewTimer(pause)
		select {
		case <-answer:
			timer.Stop()
			return s.granted(i, k, err)
		case <-timer.C:
		}
		if other, err := s.try(looking, others, opts); err == nil { // if the store does not answer, Acquire reports it
			return other, nil
		}
	}
}

// drop releases a lock that nobody wants. It does not wait long for the store.
func drop(ctx context.Context, k *locker.Lock) {
	_ = k.Do(ctx, func(context.Context) error { return nil })
}

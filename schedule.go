package locker

import (
	"container/heap"
	"context"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// schedule is a heap of items, ordered by when they are due.
type schedule[T item] []T

// item is what a schedule holds: a pointer to a struct that embeds planned.
type item interface{ asPlanned() *planned }

// planned is what a schedule keeps of an item.
type planned struct {
	due   time.Time
	index int // in the heap, counted from 1; 0: not scheduled
}

func (p *planned) asPlanned() *planned { return p }

// put adds an item, or moves it to where its due time belongs.
func (s *schedule[T]) put(x T) {
	if i := x.asPlanned().index; i > 0 {
		heap.Fix(s, i-1)
	} else {
		heap.Push(s, x)
	}
}

// remove takes an item out, if it is in.
func (s *schedule[T]) remove(x T) {
	if i := x.asPlanned().index; i > 0 {
		heap.Remove(s, i-1)
	}
}

// take takes the first item out.
func (s *schedule[T]) take() T { return heap.Pop(s).(T) }

// Len implements heap.Interface.
func (s schedule[T]) Len() int { return len(s) }

// Less implements heap.Interface.
func (s schedule[T]) Less(i, j int) bool { return s[i].asPlanned().due.Before(s[j].asPlanned().due) }

// Swap implements heap.Interface.
func (s schedule[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].asPlanned().index, s[j].asPlanned().index = i+1, j+1
}

// Push implements heap.Interface; use put.
func (s *schedule[T]) Push(x any) {
	t := x.(T)
	*s = append(*s, t)
	t.asPlanned().index = len(*s)
}

// Pop implements heap.Interface; use take.
func (s *schedule[T]) Pop() any {
	n := len(*s) - 1
	t := (*s)[n]
	clear((*s)[n:])
	*s = (*s)[:n]
	t.asPlanned().index = 0
	return t
}

// repeat calls step after first, then after each pause that step returns, and
// whenever wake is signalled. It reports true when step has reported that nothing
// is left to do, and false when ctx ended before.
//
// It does not wait for a timer that is over when it is set: two goroutines that do so at
// once crash the race detector in a bubble of testing/synctest (Go 1.26).
func repeat(ctx context.Context, first time.Duration, wake <-chan struct{}, step func() (pause time.Duration, more bool)) bool {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	pause, more := first, true
	for more {
		if pause > 0 {
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-wake:
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return false
		}
		pause, more = step()
	}
	return true
}

// signal wakes the goroutine that receives from c, a channel with a buffer of one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is signalled already
	}
}

// newBackoff is the pause between two tries of one request.
func newBackoff() retry.Backoff {
	return retry.Backoff{First: 20 * time.Millisecond, Most: 250 * time.Millisecond}
}

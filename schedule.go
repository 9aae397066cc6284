package locker

import (
	"container/heap"
	"context"
	"time"
)

// schedule is a heap of items, ordered by when they are due.
type schedule[T heapItem] []T

// heapItem is what a schedule holds: a pointer to a struct that embeds heapNode.
type heapItem interface{ node() *heapNode }

// heapNode is what a schedule keeps of an item.
type heapNode struct {
	due   time.Time
	index int // in the heap, counted from 1; 0: not scheduled
}

func (n *heapNode) node() *heapNode { return n }

// put adds an item, or moves it to where its due time belongs.
func (s *schedule[T]) put(x T) {
	if i := x.node().index; i > 0 {
		heap.Fix(s, i-1)
	} else {
		heap.Push(s, x)
	}
}

// remove takes an item out, if it is in.
func (s *schedule[T]) remove(x T) {
	if i := x.node().index; i > 0 {
		heap.Remove(s, i-1)
	}
}

// take takes the first item out.
func (s *schedule[T]) take() T { return heap.Pop(s).(T) }

// Len implements heap.Interface.
func (s schedule[T]) Len() int { return len(s) }

// Less implements heap.Interface.
func (s schedule[T]) Less(i, j int) bool { return s[i].node().due.Before(s[j].node().due) }

// Swap implements heap.Interface.
func (s schedule[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].node().index, s[j].node().index = i+1, j+1
}

// Push implements heap.Interface; use put.
func (s *schedule[T]) Push(x any) {
	t := x.(T)
	*s = append(*s, t)
	t.node().index = len(*s)
}

// Pop implements heap.Interface; use take.
func (s *schedule[T]) Pop() any {
	n := len(*s) - 1
	t := (*s)[n]
	clear((*s)[n:])
	*s = (*s)[:n]
	t.node().index = 0
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

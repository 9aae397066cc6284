// Package life has the end of a driver and of what runs in it, and how much of its time has passed.
package life

import (
	"context"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A Life has a driver's background tasks, and is a context that ends with it. Make it with [New].
type Life struct {
	context.Context //nolint:containedctx // ends with End

	end  context.CancelFunc
	mu   sync.Mutex
	work sync.WaitGroup
}

// New makes the Life of a driver that is open.
func New() *Life {
	l := &Life{}
	l.Context, l.end = context.WithCancel(context.Background())
	return l
}

// Go runs f in a goroutine that Wait waits for. After End it returns false.
func (l *Life) Go(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Closed() {
		return false
	}
	l.work.Go(f)
	return true
}

// End ends the context. It returns false if it was called before.
func (l *Life) End() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := !l.Closed()
	l.end()
	return first
}

// Closed reports whether End was called.
func (l *Life) Closed() bool { return l.Err() != nil }

// Wait waits for what Go has started.
func (l *Life) Wait() { l.work.Wait() }

// Ending runs f in the background. The function that it returns waits until f has returned, or the bound has passed.
func Ending(f func()) (wait func(bound time.Duration)) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f()
	}()
	return func(bound time.Duration) {
		t := time.NewTimer(bound)
		defer t.Stop()
		select {
		case <-ended:
		case <-t.C:
		}
	}
}

// Shared is an attempt whose result is for all who ask for it meanwhile. The zero value is usable.
type Shared[T any] struct {
	mu  sync.Mutex
	now *attempt[T] // nil: none is under way
}

type attempt[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Get returns the result of the attempt that is under way, or of a new one. It returns when ctx ends, which ends no
// attempt.
func (s *Shared[T]) Get(ctx context.Context, l *Life, try func() (T, error)) (none T, err error) {
	s.mu.Lock()
	a := s.now
	if a == nil {
		a = &attempt[T]{done: make(chan struct{})}
		if !l.Go(func() {
			defer close(a.done)
			a.value, a.err = try()
			s.mu.Lock()
			defer s.mu.Unlock()
			s.now = nil
		}) {
			s.mu.Unlock()
			return none, driver.ErrClosed
		}
		s.now = a
	}
	s.mu.Unlock()
	select {
	case <-a.done:
		return a.value, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	}
}

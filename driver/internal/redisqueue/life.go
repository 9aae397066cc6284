package redisqueue

import (
	"sync"
	"time"
)

// Life holds a driver's background tasks, and its end. The zero value is not usable; see
// NewLife.
type Life struct {
	Closing chan struct{} // closed by End

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

// NewLife makes the Life of a driver that is open.
func NewLife() *Life { return &Life{Closing: make(chan struct{})} }

// Go runs f in a goroutine that Wait waits for. After End it returns false.
func (l *Life) Go(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Go(f)
	return true
}

// End closes Closing. It returns false if it was called before.
func (l *Life) End() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.closed = true
	close(l.Closing)
	return true
}

// Closed reports whether End was called.
func (l *Life) Closed() bool {
	select {
	case <-l.Closing:
		return true
	default:
		return false
	}
}

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

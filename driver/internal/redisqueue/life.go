package redisqueue

import "sync"

// Life is what a driver has to know of its end. The zero value is not usable; see NewLife.
type Life struct {
	Closing chan struct{} // closed when Close has begun

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup
}

// NewLife makes the Life of a driver that is open.
func NewLife() *Life { return &Life{Closing: make(chan struct{})} }

// Go runs f in a goroutine that Wait waits for; false: Close has begun.
func (l *Life) Go(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Go(f)
	return true
}

// End begins the end; false: it has begun before.
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

// Closed tells whether the end has begun.
func (l *Life) Closed() bool {
	select {
	case <-l.Closing:
		return true
	default:
		return false
	}
}

// Wait waits for what Go has begun.
func (l *Life) Wait() { l.work.Wait() }

package locker

import (
	"context"
	"sync"
	"time"
)

// tasks are the calls and background tasks of a Client, which Close waits for.
type tasks struct {
	live context.Context // ends when Close begins, with the cause ErrClosed
	end  context.CancelCauseFunc
	all  context.Context // ends when Close has waited long enough
	stop context.CancelFunc

	mu     sync.Mutex
	closed bool
	group  sync.WaitGroup
}

func newTasks() *tasks {
	t := &tasks{}
	t.live, t.end = context.WithCancelCause(context.Background())
	t.all, t.stop = context.WithCancel(context.Background())
	return t
}

// begin counts a call, which ends with done. It reports false when Close has
// begun.
func (t *tasks) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.group.Add(1)
	return true
}

func (t *tasks) done() { t.group.Done() }

// run runs f in a goroutine. It reports false when Close has begun.
func (t *tasks) run(f func()) bool {
	if !t.begin() {
		return false
	}
	go func() {
		defer t.done()
		f()
	}()
	return true
}

// close ends live, and nothing begins after it. It reports false when it was
// called before.
func (t *tasks) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	t.closed = true
	t.end(ErrClosed)
	return true
}

// waitForAll waits for a group, at the latest until the given time.
func waitForAll(group *sync.WaitGroup, until time.Time) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	waitFor(done, until)
}

// waitFor waits until done is closed, at the latest until the given time.
func waitFor(done <-chan struct{}, until time.Time) {
	left := time.Until(until)
	if left <= 0 {
		return // see repeat
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// tryInParallel is inParallel for functions that may fail. It returns their errors as one.
func tryInParallel(n, limit int, f func(i int) error) error {
	var (
		mu   sync.Mutex
		errs []error
	)
	inParallel(n, limit, func(i int) {
		if err := f(i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
	})
	if len(errs) == 0 {
		return nil
	}
	return &several{errs: errs}
}

// inParallel runs f(0) … f(n-1), at most limit at a time, and waits for all.
func inParallel(n, limit int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	group.Wait()
}

package compose

import (
	"context"
	"sync"
)

// background is the work of a driver beside its calls, until Close.
type background struct {
	ctx context.Context // ends with stop

	mu     sync.Mutex
	cancel context.CancelFunc
	group  sync.WaitGroup
}

func newBackground() *background {
	b := &background{}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// run runs f in a goroutine. It reports false after stop.
func (b *background) run(f func()) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.group.Go(f)
	return true
}

// stop ends ctx. Nothing runs after wait has returned.
func (b *background) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancel()
}

func (b *background) wait() { b.group.Wait() }

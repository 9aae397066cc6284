package link

import (
	"context"
	"errors"
	"sync"
)

// ErrReplyLost is the error of an access whose reply was dropped: the access was
// executed, but its caller cannot know that.
var ErrReplyLost = errors.New("link: the reply was lost")

// ErrCut is part of the error of an access whose context ended during a cut.
var ErrCut = errors.New("link: cut")

// Interceptor is a link for a store without a network: see the package comment.
// Its methods may be called from any goroutine and at any time.
type Interceptor struct {
	mu      sync.Mutex
	cut     bool
	drop    bool
	changed chan struct{} // closed, and replaced, when cut or drop change
}

// NewInterceptor returns an Interceptor without a fault.
func NewInterceptor() *Interceptor { return &Interceptor{changed: make(chan struct{})} }

// Cut blocks every access before it is executed, and the reply of one that is
// being executed, until Heal.
func (i *Interceptor) Cut() { i.set(func() { i.cut = true }) }

// DropReplies executes accesses and drops their replies: the caller waits until
// its context ends, or gets [ErrReplyLost] when the fault ends, by
// DropReplies(false) or Heal.
func (i *Interceptor) DropReplies(on bool) { i.set(func() { i.drop = on }) }

// Heal ends Cut and DropReplies.
func (i *Interceptor) Heal() { i.set(func() { i.cut, i.drop = false, false }) }

// Intercept executes access and returns its error, unless a fault prevents that.
// An access that has not begun when ctx ends is not executed.
func (i *Interceptor) Intercept(ctx context.Context, access func() error) error {
	if err := i.wait(ctx, func() bool { return i.cut }); err != nil {
		return err
	}
	err := access()
	if i.drops() {
		if ended := i.wait(ctx, func() bool { return i.drop }); ended != nil {
			return ended
		}
		return ErrReplyLost
	}
	if cut := i.wait(ctx, func() bool { return i.cut }); cut != nil {
		return cut
	}
	return err
}

func (i *Interceptor) drops() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.drop
}

// wait returns when blocked is false or ctx has ended. It calls blocked with mu held.
func (i *Interceptor) wait(ctx context.Context, blocked func() bool) error {
	for {
		i.mu.Lock()
		waits, changed := blocked(), i.changed
		i.mu.Unlock()
		if !waits {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), ErrCut)
		}
	}
}

func (i *Interceptor) set(f func()) {
	i.mu.Lock()
	defer i.mu.Unlock()
	f()
	close(i.changed)
	i.changed = make(chan struct{})
}

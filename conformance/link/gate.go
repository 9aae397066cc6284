package link

import (
	"context"
	"errors"
	"sync"
)

// ErrReplyLost is the error of an access whose reply the gate has lost: it was
// executed, and its caller cannot know.
var ErrReplyLost = errors.New("link: the reply was lost")

// ErrCut is part of the error of an access whose context ended while the gate
// was cut.
var ErrCut = errors.New("link: cut")

// Gate is a link for a store without a network: see the package comment. Its
// methods may be called from any goroutine and at any time.
type Gate struct {
	mu      sync.Mutex
	cut     bool
	drop    bool
	changed chan struct{} // closed, and replaced, when cut or drop change
}

// NewGate returns a gate that is open.
func NewGate() *Gate { return &Gate{changed: make(chan struct{})} }

// Cut stops every access before it is executed, and the reply of one that is
// under way, until Heal.
func (g *Gate) Cut() { g.set(func() { g.cut = true }) }

// DropReplies lets accesses be executed and loses their replies: the caller hears
// nothing until its context ends, or [ErrReplyLost] when this is over, by false or
// by Heal.
func (g *Gate) DropReplies(on bool) { g.set(func() { g.drop = on }) }

// Heal undoes Cut and DropReplies.
func (g *Gate) Heal() { g.set(func() { g.cut, g.drop = false, false }) }

// Pass executes access and returns its error, as far as the gate lets it. What
// was not executed when ctx ends is not executed any more.
func (g *Gate) Pass(ctx context.Context, access func() error) error {
	if err := g.wait(ctx, func() bool { return g.cut }); err != nil {
		return err
	}
	err := access()
	if g.drops() {
		if over := g.wait(ctx, func() bool { return g.drop }); over != nil {
			return over
		}
		return ErrReplyLost
	}
	if cut := g.wait(ctx, func() bool { return g.cut }); cut != nil {
		return cut
	}
	return err
}

func (g *Gate) drops() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.drop
}

// wait returns when shut, which is called with mu held, is false or ctx has ended.
func (g *Gate) wait(ctx context.Context, shut func() bool) error {
	for {
		g.mu.Lock()
		closed, changed := shut(), g.changed
		g.mu.Unlock()
		if !closed {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), ErrCut)
		}
	}
}

func (g *Gate) set(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
}

package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker"
)

// Term is the time for which this candidate leads. All methods may be called from
// many goroutines at once.
type Term struct {
	e    *Election
	lock *locker.Lock
	run  bool // Run gives the leadership up, when its function has returned

	ctx context.Context         // ends with the term
	end context.CancelCauseFunc // see stop

	mu       sync.Mutex
	contexts map[context.Context]context.CancelCauseFunc // under those of Context, until stop

	endAnnouncement context.CancelFunc // ends the goroutine that announces the term
	group           sync.WaitGroup
	stopped         sync.Once
	once            sync.Once // of finish
	err             error     // of finish
}

func newTerm(e *Election, k *locker.Lock, run bool) *Term {
	t := &Term{
		e: e, lock: k, run: run, contexts: make(map[context.Context]context.CancelCauseFunc),
	}
	t.ctx, t.end = context.WithCancelCause(k.Context(context.Background()))
	announced, endAnnouncement := context.WithCancel(context.Background())
	t.endAnnouncement = endAnnouncement
	context.AfterFunc(t.ctx, func() {
		if errors.Is(context.Cause(t.ctx), locker.ErrLost) {
			endAnnouncement()
		}
	})
	t.group.Go(func() { t.announce(announced) })
	return t
}

// Token returns the fencing token: it is greater than the token of every earlier
// term of the election.
func (t *Term) Token() uint64 { return t.lock.Token() }

// Context returns a child of parent for the work of the leader. It ends when
// the leadership is lost (context.Cause: locker.ErrLost), when the leader steps
// down (ErrSteppedDown), or with parent.
func (t *Term) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(parent)
	t.mu.Lock()
	defer t.mu.Unlock()
	if cause := context.Cause(t.ctx); cause != nil {
		cancel(cause)
	} else {
		t.contexts[ctx] = cancel
	}
	work := t.lock.Context(ctx) // a loss ends it
	context.AfterFunc(work, func() {
		cancel(nil)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.contexts, ctx)
	})
	return work
}

// stop ends the term and its contexts. They have ended when it returns, so that the
// release of the lock, which comes after it, is not the cause of their end. To end a
// context also calls methods of its parent, a caller's: stop does not wait for those.
func (t *Term) stop() {
	t.stopped.Do(func() { // a second call waits for the first
		t.end(ErrSteppedDown)
		t.mu.Lock()
		all := t.contexts
		t.contexts = nil
		t.mu.Unlock()
		for ctx, cancel := range all {
			go cancel(context.Cause(t.ctx))
			<-ctx.Done()
			_ = context.Cause(ctx) // waits until those that were derived from ctx have ended, too
		}
	})
}

// Done is closed when the leadership is lost or the leader steps down.
func (t *Term) Done() <-chan struct{} { return t.ctx.Done() }

// Err returns nil while the candidate leads, then locker.ErrLost or ErrSteppedDown, or
// locker.ErrReleased after the Locker was closed. It reads the clock: after a pause of
// the process it reports a loss before Done is closed.
func (t *Term) Err() error {
	err := t.lock.Err() // a loss ends t.ctx
	if cause := context.Cause(t.ctx); cause != nil {
		return cause
	}
	return err
}

// StepDown ends the term and its contexts, and gives up the leadership. Under Run
// the leadership ends when the function has returned, and Run campaigns again.
// After Campaign it ends at once: the caller must make sure before that the
// leader's work has ended. A term that Campaign began has to be ended by StepDown
// also when the leadership was lost. StepDown works with a ctx that has ended. The
// errors are those of locker.Lock.Release: ErrLost means that the leadership was
// lost before. A second call returns the result of the first. If the store does not
// answer, StepDown returns about when Release does, after the bound for a release
// (locker.WithReleaseTimeout, 5 s by default): the tickets are removed in the background.
func (t *Term) StepDown(ctx context.Context) error {
	if t.run {
		t.stop()
		return nil
	}
	return t.finish(ctx)
}

// releaseSoon is how long the release of a store that answers takes.
const releaseSoon = 100 * time.Millisecond

// finish gives the leadership up. The announcement ends afterwards, so that the
// observers that wake up find the next leader. If the store does not answer soon, the
// announcement ends at the same time: each release takes its bound.
func (t *Term) finish(ctx context.Context) error {
	t.once.Do(func() {
		defer func() { // also when an observer of the Locker panics
			t.endAnnouncement()
			t.group.Wait()
		}()
		_ = t.lock.Err() // so that a loss, if there was one, is the cause
		t.stop()
		defer time.AfterFunc(releaseSoon, t.endAnnouncement).Stop()
		if err := t.lock.Release(ctx); err != nil {
			t.err = fmt.Errorf("election %q: %w", t.e.name, err)
		}
	})
	return t.err
}

package election

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lockerproject/locker"
)

// Term is the time for which this candidate leads. All methods may be called from
// many goroutines at once.
type Term struct {
	e    *Election
	lock *locker.Lock
	run  bool // Run gives the leadership up, when its function has returned

	ctx context.Context // ends with the term
	end context.CancelCauseFunc

	notes chan proclamation
	mute  context.CancelFunc // ends the announcement
	group sync.WaitGroup     // the goroutine of the announcement
	once  sync.Once
	err   error // of finish
}

// proclamation is a new note, and whom to tell that it is announced.
type proclamation struct {
	note string
	done chan struct{}
}

func newTerm(e *Election, k *locker.Lock, run bool) *Term {
	t := &Term{e: e, lock: k, run: run, notes: make(chan proclamation)}
	t.ctx, t.end = context.WithCancelCause(k.Context(context.Background()))
	announced, mute := context.WithCancel(context.Background())
	t.mute = mute
	context.AfterFunc(t.ctx, func() {
		if errors.Is(context.Cause(t.ctx), locker.ErrLost) {
			mute()
		}
	})
	t.group.Go(func() { t.announce(announced) })
	return t
}

// Token returns the fencing token: it is greater than that of every earlier
// term of the election.
func (t *Term) Token() uint64 { return t.lock.Token() }

// Context returns a child of parent for the work of the leader. It ends when
// the leadership is lost (context.Cause: locker.ErrLost), when the leader steps
// down (ErrSteppedDown), or with parent.
func (t *Term) Context(parent context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(t.lock.Context(parent))
	forget := context.AfterFunc(t.ctx, func() { cancel(context.Cause(t.ctx)) })
	context.AfterFunc(ctx, func() { forget() })
	return ctx
}

// Done is closed when the leadership is lost or the leader steps down.
func (t *Term) Done() <-chan struct{} { return t.ctx.Done() }

// Err returns nil while the candidate leads, then locker.ErrLost or
// ErrSteppedDown, or locker.ErrReleased after the Locker was closed. It looks at
// the clock: after a pause of the process it knows of the loss before Done does.
func (t *Term) Err() error {
	err := t.lock.Err() // a loss ends t.ctx
	if cause := context.Cause(t.ctx); cause != nil {
		return cause
	}
	return err
}

// StepDown ends the term. Its contexts end; then the leadership is given up,
// under Run when the function has returned, otherwise at once, so that the caller
// makes sure that the leader's work has ended. Run then campaigns again. A
// term that Campaign began has to be ended by StepDown also when the leadership
// was lost. StepDown works with a ctx that has ended. An error says that the
// store has not confirmed the end of the term, or ErrLost that the leadership was
// lost before; a second call has the answer of the first.
func (t *Term) StepDown(ctx context.Context) error {
	if t.run {
		t.end(ErrSteppedDown)
		return nil
	}
	return t.finish(ctx)
}

// finish gives the leadership up. The announcement ends after it, so that the
// observers that wake up find the next leader.
func (t *Term) finish(ctx context.Context) error {
	t.once.Do(func() {
		_ = t.lock.Err() // a loss is the cause, if there was one
		t.end(ErrSteppedDown)
		if err := t.lock.Release(ctx); err != nil {
			t.err = fmt.Errorf("election %q: %w", t.e.name, err)
		}
		t.mute()
		t.group.Wait()
	})
	return t.err
}

// Proclaim changes the note of the leader without another election. It returns
// nil when observers can see it. If ctx ends before, they may see it later, or
// the term has ended meanwhile, which Err says.
func (t *Term) Proclaim(ctx context.Context, note string) error {
	if err := checkNote(note); err != nil {
		return fmt.Errorf("election %q: %w", t.e.name, err)
	}
	p := proclamation{note: note, done: make(chan struct{})}
	notes := t.notes
	for {
		select {
		case notes <- p:
			notes = nil
		case <-p.done:
			return nil
		case <-t.ctx.Done():
			return fmt.Errorf("election %q: proclaim: %w", t.e.name, t.Err())
		case <-ctx.Done():
			return fmt.Errorf("election %q: proclaim: %w", t.e.name, ctx.Err())
		}
	}
}

// announce holds the lock of the term, with the leader's note, until ctx ends.
//
// Its lease is a third shorter than that of the leadership, of which a dead
// leader has at least two thirds left: observers wake up before the next leader
// is elected, and not up to a third of the TTL after.
func (t *Term) announce(ctx context.Context) {
	p := proclamation{note: t.e.note, done: make(chan struct{})}
	ttl := t.e.ttl - t.e.ttl/3
	pause := newPause()
	for ctx.Err() == nil {
		k, err := t.e.l.Acquire(ctx, t.e.termName(t.Token()), t.e.ticket(p.note, ttl)...)
		if err != nil {
			switch {
			case errors.Is(err, locker.ErrClosed):
				return
			case errors.Is(err, locker.ErrInvalidOption):
				ttl = t.e.ttl // the safety margin is longer than the shorter one
			}
			pause.sleep(ctx, pauseMost)
			continue
		}
		pause.reset()
		select {
		case <-p.done:
		default:
			close(p.done)
		}
		select {
		case p = <-t.notes:
		case <-k.Done(): // lost: announce again
		case <-ctx.Done():
		}
		_ = k.Release(ctx)
	}
}

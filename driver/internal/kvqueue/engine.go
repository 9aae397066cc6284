package kvqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// Engine is a driver without the methods that only a store can give. Embed one in the
// driver.
type Engine struct {
	store      Store
	opts       Options
	notifyLoss func(driver.Hold, error) // nil if nobody wants notifications

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	work    sync.WaitGroup // all goroutines
	closing sync.Once

	// mu guards what follows, and the fields of tickets, queues and sessions. It is
	// never held during a request.
	mu       sync.Mutex
	closed   bool
	entering map[string]*entering // by the ID of the ticket
	tickets  map[string]*ticket   // by ID
	keys     map[string]*ticket   // by key
	queues   map[string]*queue    // by name
	sessions map[*session]struct{}
	current  map[kind]*session // the newest of each kind, if it takes tickets
	asking   map[kind]*attempt
	timer    *time.Timer // of the background task of sessions
	keepAt   time.Time   // … and when that is
	ticks    uint64      // tick
	notices  []notice    // losses to report when mu is unlocked
	refused  error       // of the last background request; nil: it was answered, or only late
}

var (
	_ driver.Driver       = (*Engine)(nil)
	_ driver.BatchRenewer = (*Engine)(nil)
	_ driver.LossNotifier = (*Engine)(nil)
	_ driver.Shortener    = (*Engine)(nil)
)

// Times.
const (
	requestBound = 10 * time.Second       // one request of a background task
	tryBound     = 2 * time.Second        // one of several tries: another server, or connection, may answer the next
	endBound     = 2 * time.Second        // the end of a session that nobody needs
	closeBound   = 100 * time.Millisecond // the same at Close (D17)
	retryFirst   = 20 * time.Millisecond  // between two tries
	retryMost    = 500 * time.Millisecond // the same, at the most
)

// Causes of a loss.
var (
	errDeleted     = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)
	errLeaving     = errors.New("the release of the ticket is not answered yet")
	errSessionLost = fmt.Errorf("%w: %w", driver.ErrLost, ErrSessionOver)
)

// lookFor, unless it is zero, takes the place of Options.LookFor: the simulation, whose
// processes hold few locks, sets it.
var lookFor int

// New makes an Engine.
func New(o Options) *Engine {
	o.Recheck = cmp.Or(o.Recheck, time.Second)
	o.LongQueue = cmp.Or(o.LongQueue, 64)
	o.LookFor, o.MissingMost = cmp.Or(lookFor, o.LookFor, 64), cmp.Or(o.MissingMost, 64)
	e := &Engine{
		store: o.Store, opts: o,
		entering: make(map[string]*entering),
		tickets:  make(map[string]*ticket),
		keys:     make(map[string]*ticket),
		queues:   make(map[string]*queue),
		sessions: make(map[*session]struct{}),
		current:  make(map[kind]*session),
		asking:   make(map[kind]*attempt),
	}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	return e
}

// NotifyLoss implements driver.LossNotifier.
func (e *Engine) NotifyLoss(notify func(driver.Hold, error)) { e.notifyLoss = notify }

// Close implements driver.Driver. It ends the sessions, and with them the tickets that
// may still be queued, except those with a minimum hold. If the store does not answer,
// the sessions end by themselves.
func (e *Engine) Close() (err error) {
	e.closing.Do(func() { err = e.shut() }) // a second call waits for the first
	return err
}

func (e *Engine) shut() error {
	e.mu.Lock()
	e.closed = true
	if e.timer != nil {
		e.timer.Stop()
	}
	e.mu.Unlock()
	e.cancel()
	e.work.Wait()
	return e.endAll()
}

// endAll ends all sessions but those that a minimum hold keeps.
func (e *Engine) endAll() error {
	left := 0
	e.mu.Lock()
	ending := maps.Clone(e.sessions)
	maps.DeleteFunc(ending, func(s *session, _ struct{}) bool { return s.mayHave })
	for _, t := range e.tickets {
		if t.kept() {
			delete(ending, t.session)
		} else {
			left++
		}
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	var failed atomic.Pointer[error] // one of them, since they are much the same
	each(slices.Collect(maps.Keys(ending)), func(s *session) {
		if err := e.store.End(ctx, s.id); err != nil && !errors.Is(err, ErrSessionOver) {
			failed.Store(&err)
		}
	})
	if err := failed.Load(); left > 0 && err != nil {
		return fmt.Errorf("%d tickets are left to their leases: %w", left, *err)
	}
	return nil
}

// tick orders requests and reports about losses, which a clock may show at one time. With
// mu held.
func (e *Engine) tick() uint64 {
	e.ticks++
	return e.ticks
}

// notice is a loss that is still to be reported.
type notice struct {
	hold  driver.Hold
	cause error
}

// unlock unlocks mu, and reports the losses that were found while it was held.
func (e *Engine) unlock() {
	notices := e.notices
	e.notices = nil
	e.mu.Unlock()
	if e.notifyLoss == nil {
		return
	}
	for _, n := range notices {
		e.notifyLoss(n.hold, n.cause)
	}
}

// spawn starts a goroutine that Close waits for; it reports false after Close. With
// mu held.
func (e *Engine) spawn(f func()) bool {
	if e.closed {
		return false
	}
	e.work.Go(f)
	return true
}

// bind returns a context that ends with ctx and with the engine.
func (e *Engine) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.ctx, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// failed returns the error of a request for its caller. If a context has ended the
// request, the error has the cause of that, and what is known of the store: nothing, if err is nil.
func (e *Engine) failed(ctx context.Context, err error) error {
	switch {
	case e.ctx.Err() != nil:
		return driver.ErrClosed
	case err == nil:
		return context.Cause(ctx)
	case ctx.Err() == nil:
		return e.store.Explain(err)
	}
	cause, why := context.Cause(ctx), e.store.Explain(err)
	if why == ctx.Err() && errors.Is(cause, why) { //nolint:errorlint // it says no more than that
		return cause
	}
	return errors.Join(cause, why)
}

// answered notes how a background request has ended: what keeps waiters from the store is told to those who give up. With mu
// held.
func (e *Engine) answered(err error) {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = nil // the caller's own end
	}
	e.refused = err
}

// stopped returns the error of a wait that ctx has ended.
func (e *Engine) stopped(ctx context.Context) error {
	e.mu.Lock()
	refused := e.refused
	e.mu.Unlock()
	return e.failed(ctx, refused)
}

// pause waits between two tries; it reports false when ctx or the engine ends.
func (e *Engine) pause(ctx context.Context, delay time.Duration) bool {
	return retry.Sleep(ctx, delay, e.ctx.Done())
}

// newBackoff returns the pauses between tries.
func newBackoff() retry.Backoff { return retry.Backoff{First: retryFirst, Most: retryMost} }

// each calls f for all of xs, a few at a time.
func each[T any](xs []T, f func(T)) {
	const atOnce = 16
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, x := range xs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(x)
		})
	}
	group.Wait()
}

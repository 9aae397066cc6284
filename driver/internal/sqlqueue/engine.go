package sqlqueue

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
)

// Options are how a driver makes an Engine.
type Options struct {
	Store    Store
	Notifier Notifier // nil: none
	Schema   Schema
	Liveness time.Duration

	ListenToWait bool // listen as long as something waits; false: also while something is held, for notices of losses

	LongestPoll time.Duration // between two requests for the process's own, as long as no notices arrive; 0: 250 ms

	SweepEvery time.Duration // 0: the constant of the same name
	ListenFor  time.Duration // how long to listen after the last use; 0: 30 s

	ListenFirst bool // before a grant is returned: the listener starts as fast as a request is answered
}

// An Engine is a driver over a Store. It has the methods of the driver interface, and no others: a driver embeds it.
type Engine struct {
	opts       Options
	store      Store
	clock      clock // of the database
	book       book
	notifyLoss func(driver.Hold, error)

	registering chan struct{} // one goroutine registers the process
	used        atomic.Bool   // the tables were there

	life    *life.Life
	closing sync.Once
}

var (
	_ driver.Driver       = (*Engine)(nil)
	_ driver.BatchRenewer = (*Engine)(nil)
	_ driver.Lister       = (*Engine)(nil)
	_ driver.Breaker      = (*Engine)(nil)
	_ driver.LossNotifier = (*Engine)(nil)
	_ driver.Bounder      = (*Engine)(nil)
	_ driver.Shortener    = (*Engine)(nil)
)

// New makes an engine. It sends nothing.
func New(o Options) *Engine {
	o.SweepEvery, o.ListenFor = cmp.Or(o.SweepEvery, SweepEvery), cmp.Or(o.ListenFor, listenFor)
	o.LongestPoll = cmp.Or(o.LongestPoll, longestPoll)
	e := &Engine{opts: o, store: o.Store, registering: make(chan struct{}, 1), book: newBook(o.Liveness), life: life.New()}
	e.book.listenToWait = o.ListenToWait
	return e
}

// slack allows for timers, a poll and a commit.
const slack = 500 * time.Millisecond

// Bounds implements driver.Bounder. Waiters expire some time after their last heartbeat, and the next check of the
// queue removes them.
func (e *Engine) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{
		MinTTL: MinTTL, Crash: ttl + slack,
		Liveness: e.opts.Liveness + e.heartbeatEvery() + slack,
	}
}

// NotifyLoss implements driver.LossNotifier.
func (e *Engine) NotifyLoss(notify func(driver.Hold, error)) { e.notifyLoss = notify }

// Inspect implements driver.Driver.
func (e *Engine) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	return Repeat(ctx, e, Twice, func() ([]driver.Ticket, error) { return e.store.Queue(ctx, name) })
}

// List implements driver.Lister.
func (e *Engine) List(ctx context.Context) ([]string, error) {
	return Repeat(ctx, e, Twice, func() ([]string, error) { return e.store.Names(ctx) })
}

// Closing is closed when Close begins.
func Closing(e *Engine) <-chan struct{} { return e.life.Done() }

// start starts a background task, unless running says that it runs, or the driver is closed.
func (e *Engine) start(running *bool, task func()) {
	e.book.mu.Lock()
	defer e.book.mu.Unlock()
	if !*running {
		*running = e.life.Go(task)
	}
}

// CloseBound is how long Close waits for a database that does not answer.
const CloseBound = 100 * time.Millisecond

// Close implements driver.Driver. The store stays open: the driver closes it afterwards.
func (e *Engine) Close() error {
	e.closing.Do(e.end) // a second call waits for the first, before its driver closes the pool
	return nil
}

func (e *Engine) end() {
	begun := time.Now()
	e.life.End()
	life.Ending(e.life.Wait)(CloseBound)
	if process, known := e.book.leave(); known {
		ctx, cancel := context.WithTimeout(context.Background(), CloseBound-time.Since(begun))
		defer cancel()
		_ = e.store.Leave(ctx, process) // else the row expires
	}
}

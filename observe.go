package locker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/internal/whole"
)

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	EventWaiting     EventKind = iota + 1 // the ticket is queued and not granted; Acquired, Reentered or Failed follows; Elapsed is the time of the call so far
	EventRejoined                         // the waiting ticket was gone after an outage; a new one is queued at the tail
	EventAcquired                         // granted; Elapsed is the time of the call
	EventReentered                        // another handle on a lock that is held; Elapsed is the time of the call
	EventRenewed                          // the lease was renewed; Elapsed is the time of the request
	EventRenewFailed                      // a renewal failed and is tried again; Err is the reason
	EventLost                             // the lock was lost; Elapsed is how long it was held, Err the cause
	EventReleased                         // the last handle was released; Elapsed is how long the lock was held, Err is set if the store has not confirmed the release
	EventFailed                           // an acquisition failed; Elapsed is the time of the call, Err the reason
)

var eventNames = [...]string{
	EventWaiting: "waiting", EventRejoined: "rejoined", EventAcquired: "acquired",
	EventReentered: "reentered", EventRenewed: "renewed", EventRenewFailed: "renew failed",
	EventLost: "lost", EventReleased: "released", EventFailed: "failed",
}

// String returns the kind as text, such as "acquired".
func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown event"
}

// Event is one event of an acquisition, or of the lock that it acquired.
//
// Events with the same ID come one after the other: Waiting and Rejoined, then
// Acquired, Reentered or Failed; after Acquired come Renewed and RenewFailed, and
// last Released or Lost. One of these two follows every Acquired.
type Event struct {
	Kind     EventKind
	ID       uint64 // of the acquisition: its events and those of its lock have the same ID; unique in the process
	Store    string // as the driver names itself, without credentials
	Name     string
	Owner    string
	Token    uint64        // 0 before the grant
	Shared   bool          // a reader or a permit
	Waited   bool          // Acquired, Reentered, Failed: EventWaiting came before, and ends with this event
	Degraded error         // Acquired: why a substitute for the store granted the lock (driver.Grant.Degraded); nil: the store did
	Elapsed  time.Duration // see the kinds
	Err      error         // see the kinds
}

// acquisitions counts the acquisitions that have observers.
var acquisitions atomic.Uint64

// notify calls the observers.
func (c *core) notify(ctx context.Context, e Event) {
	e.Store = c.store
	notifyEach(ctx, c.observers, e)
}

// notifyEach calls observers in their order, each even if one before it panics, so that
// gauges are always decremented.
func notifyEach(ctx context.Context, observers []func(context.Context, Event), e Event) {
	if len(observers) > 0 {
		defer notifyEach(ctx, observers[1:], e)
		observers[0](ctx, e)
	}
}

// observed are the events of a lease that the observers have not got yet. Whoever ends,
// renews or removes a lease only queues events: they are delivered by a call for that very
// lock, in its caller's goroutine, or else in the background. One goroutine at a time
// delivers the events of a lease, so that they come in order.
type observed struct {
	ctx   context.Context // has the values of the acquisition's context
	id    uint64          // of the acquisition
	later bool            // the lease is in background.queue; guarded by background.mu

	mu         sync.Mutex
	queue      []queuedEvent // at most one of a renewal and the one of the end
	delivering bool          // a goroutine calls the observers, and calls deliverLater afterwards
}

// queuedEvent is an event and the context that observers get with it.
type queuedEvent struct {
	ctx context.Context
	e   Event
}

// queueEvent queues an event of the lease. Events of renewals are queued with leases.mu
// held while the lease is held, so none comes after the event of the end. If observers are
// so slow that the one before is still queued, it takes its place.
func (l *lease) queueEvent(ctx context.Context, kind EventKind, elapsed time.Duration, err error) {
	o := l.observed
	if o == nil {
		return
	}
	next := queuedEvent{whole.Outside(ctx), l.event(kind, elapsed, err)} // a release may be a part of a call
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) > 0 && (kind == EventRenewed || kind == EventRenewFailed) {
		o.queue[0] = next // in place of another renewal's
		return
	}
	o.queue = append(o.queue, next)
}

// deliverFirst calls the observers with the first event of the lease, which was made with
// delivering set. It leaves the events after that to the background: it must not last as
// long as the lease is renewed.
func (l *lease) deliverFirst(first queuedEvent) {
	defer l.deliverLater()
	l.core.deliverOne(l.observed, first)
}

// deliver calls the observers with the queued events of a lease that has ended, unless
// another goroutine does. If an observer panics, the events after that are delivered in the
// background.
func (l *lease) deliver() {
	defer l.deliverLater()
	for l.deliverNext() {
	}
}

// deliverEnd is deliver after a release.
func (l *lease) deliverEnd() {
	defer l.core.ends.Done()
	l.deliver()
}

// deliverNext delivers the next event. It reports false if there is none, or another
// goroutine delivers.
func (l *lease) deliverNext() bool {
	o := l.observed
	if o == nil {
		return false
	}
	o.mu.Lock()
	if o.delivering || len(o.queue) == 0 {
		o.mu.Unlock()
		return false
	}
	o.delivering = true
	next := o.queue[0]
	o.queue = o.queue[1:]
	o.mu.Unlock()
	l.core.deliverOne(o, next)
	return true
}

// waiting reports whether there are events that nobody delivers.
func (o *observed) waiting() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.delivering && len(o.queue) > 0
}

func (c *core) deliverOne(o *observed, next queuedEvent) {
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.delivering = false
	}()
	c.notify(next.ctx, next.e)
}

// deliverEach calls deliver for each of several leases, even if an observer panics.
func deliverEach(ls []*lease, deliver func(*lease)) {
	if len(ls) > 0 {
		defer deliverEach(ls[1:], deliver)
		deliver(ls[0])
	}
}

// deliverLater has the queued events delivered in the background, if there are any and
// nobody delivers.
func (l *lease) deliverLater() {
	if l.observed != nil && l.observed.waiting() {
		l.core.background.add(l)
	}
}

// background delivers events that no call delivers, in one goroutine, which ends when
// there is none left.
type background struct {
	mu    sync.Mutex
	queue []*lease      // with events, each lease once
	done  chan struct{} // closed when the goroutine ends; nil: it does not run
}

func (b *background) add(l *lease) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.observed.later {
		return
	}
	l.observed.later = true
	b.queue = append(b.queue, l)
	if b.done == nil {
		b.done = make(chan struct{})
		go b.run(b.done)
	}
}

// run delivers one event of each lease in turn, so that a lease whose renewals keep slow
// observers busy does not hide the others. An observer may end the goroutine, as
// t.FailNow does: another one goes on.
func (b *background) run(done chan struct{}) {
	ended := false
	defer func() {
		if ended {
			close(done)
		} else {
			go b.run(done)
		}
	}()
	for l := b.next(); l != nil; l = b.next() {
		b.deliver(l)
	}
	ended = true
}

func (*background) deliver(l *lease) {
	defer l.deliverLater()
	l.deliverNext()
}

func (b *background) next() *lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.queue, b.done = nil, nil
		return nil
	}
	l := b.queue[0]
	b.queue = b.queue[1:]
	l.observed.later = false
	return l
}

// wait waits until what is queued now is delivered, at the latest until the given time.
func (b *background) wait(until time.Time) {
	b.mu.Lock()
	done := b.done
	b.mu.Unlock()
	if done != nil {
		waitFor(done, until)
	}
}

// context is the context of an event that no call has caused.
func (l *lease) context() context.Context {
	if l.observed == nil {
		return context.Background()
	}
	return l.observed.ctx
}

// event is an Event of a lease that has observers.
func (l *lease) event(kind EventKind, elapsed time.Duration, err error) Event {
	return Event{
		Kind: kind, ID: l.observed.id, Name: l.hold.Name, Owner: l.owner, Token: l.hold.Token,
		Shared: l.hold.Shared, Elapsed: elapsed, Err: err,
	}
}

package locker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// EventKind is the kind of an Event.
type EventKind int

// The kinds of events.
const (
	EventWaiting     EventKind = iota + 1 // the ticket is queued and not granted; Acquired or Failed follows; Elapsed is the time of the call so far
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
	Degraded bool          // Acquired: a substitute for the store has granted the lock (driver.Grant.Degraded)
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

// notifyEach calls observers in their order, each even if one before it panics: those that count
// must see the end of what they have seen begin.
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
	ctx context.Context // has the values of the acquisition's context
	id  uint64          // of the acquisition

	mu         sync.Mutex
	queue      []queuedEvent
	delivering bool
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
	next := queuedEvent{ctx, l.event(kind, elapsed, err)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if last := len(o.queue) - 1; last >= 0 && o.queue[last].e.Kind == kind {
		o.queue[last] = next
		return
	}
	o.queue = append(o.queue, next)
}

// deliver calls the observers with the queued events, unless another goroutine does. If an
// observer panics, the events after that are delivered in the background.
func (l *lease) deliver() {
	o := l.observed
	if o == nil {
		return
	}
	complete := false
	defer func() {
		if !complete {
			l.deliverLater()
		}
	}()
	for next, ok := o.take(); ok; next, ok = o.take() {
		l.core.deliverOne(o, next)
	}
	complete = true
}

// take returns the next event to be delivered.
func (o *observed) take() (next queuedEvent, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.delivering || len(o.queue) == 0 {
		return queuedEvent{}, false
	}
	o.delivering = true
	next, o.queue = o.queue[0], o.queue[1:]
	return next, true
}

func (c *core) deliverOne(o *observed, next queuedEvent) {
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.delivering = false
	}()
	c.notify(next.ctx, next.e)
}

// deliverEach delivers the events of several leases, each even if an observer panics.
func deliverEach(ls []*lease) {
	if len(ls) > 0 {
		defer deliverEach(ls[1:])
		ls[0].deliver()
	}
}

// deliverLater has the queued events delivered in the background.
func (l *lease) deliverLater() {
	if l.observed == nil {
		return
	}
	b := &l.core.background
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, l)
	if !b.running {
		b.running = true
		b.group.Go(b.run)
	}
}

// background delivers events that no call delivers, in one goroutine, which ends when
// there is none left.
type background struct {
	mu      sync.Mutex
	queue   []*lease // with events
	running bool
	group   sync.WaitGroup
}

func (b *background) run() {
	for l := b.next(); l != nil; l = b.next() {
		l.deliver()
	}
}

func (b *background) next() *lease {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.queue, b.running = nil, false
		return nil
	}
	l := b.queue[0]
	b.queue = b.queue[1:]
	return l
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

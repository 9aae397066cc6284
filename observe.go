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

// observed is what a lease keeps for the observers.
type observed struct {
	ctx context.Context // has the values of the acquisition's context
	id  uint64          // of the acquisition

	// mu is held during an event of the lease, so that its events come in order. The
	// first event takes it before others can end the lease. It comes before leases.mu.
	mu sync.Mutex
}

// lock begins an event. It does nothing for nil, a lease without observers.
func (o *observed) lock() {
	if o != nil {
		o.mu.Lock()
	}
}

func (o *observed) unlock() {
	if o != nil {
		o.mu.Unlock()
	}
}

// notify calls the observers, after they have returned from the lease's earlier events.
func (l *lease) notify(ctx context.Context, kind EventKind, elapsed time.Duration, err error) {
	if o := l.observed; o != nil {
		o.lock()
		defer o.unlock()
		l.core.notify(ctx, l.event(kind, elapsed, err))
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

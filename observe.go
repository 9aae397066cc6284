package locker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// EventKind says what an Event tells.
type EventKind int

// What an observer is told.
const (
	EventWaiting     EventKind = iota + 1 // the ticket is queued and not granted; Acquired or Failed follows; Elapsed is the time of the call so far
	EventRejoined                         // the waiting ticket was gone after an outage; a new one is queued at the tail
	EventAcquired                         // granted; Elapsed is the time of the call
	EventReentered                        // one more handle on a lock that is held; Elapsed is the time of the call
	EventRenewed                          // the lease was renewed; Elapsed is the time the request took
	EventRenewFailed                      // a renewal failed and is tried again; Err says why
	EventLost                             // the lock was lost; Elapsed is the time held, Err the cause
	EventReleased                         // the last handle was released; Elapsed is the time held, Err is set if the store has not confirmed it
	EventFailed                           // an acquisition failed; Elapsed is the time of the call, Err the reason
)

var eventNames = [...]string{
	EventWaiting: "waiting", EventRejoined: "rejoined", EventAcquired: "acquired",
	EventReentered: "reentered", EventRenewed: "renewed", EventRenewFailed: "renew failed",
	EventLost: "lost", EventReleased: "released", EventFailed: "failed",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown event"
}

// Event is one fact about one lock of a Client.
//
// Events with the same ID come one after the other: Waiting, Rejoined, then
// Acquired, Reentered or Failed; after Acquired come Renewed and RenewFailed,
// and last Released or Lost. Every Acquired is followed by one of these two.
type Event struct {
	Kind     EventKind
	ID       uint64 // of the acquisition, in all its events and those of the lock that it got; unique in the process
	Store    string // as the driver names itself, without credentials
	Name     string
	Owner    string
	Token    uint64        // 0 before the grant
	Shared   bool          // a reader or a permit
	Waited   bool          // Acquired, Reentered, Failed: EventWaiting was told before, and ends with this
	Degraded bool          // Acquired: a substitute for the store has granted (driver.Grant.Degraded)
	Elapsed  time.Duration // see the kinds
	Err      error         // see the kinds
}

// acquisitions counts the acquisitions that observers are told of.
var acquisitions atomic.Uint64

// tell tells the observers.
func (c *core) tell(ctx context.Context, e Event) {
	e.Store = c.store
	for _, f := range c.observers {
		f(ctx, e)
	}
}

// observed is what a lease has for the observers.
type observed struct {
	ctx context.Context // the values of the acquisition's
	id  uint64          // of the acquisition

	// mu is held while an event of the lease is told, from before others may end the
	// lease, so that events come in order. It is taken before leases.mu.
	mu sync.Mutex
}

// lock begins to tell of a lease; nil: nobody observes it.
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

// tell tells the observers of a lease, after the events before.
func (l *lease) tell(ctx context.Context, kind EventKind, elapsed time.Duration, err error) {
	if o := l.observed; o != nil {
		o.lock()
		defer o.unlock()
		l.book.tell(ctx, l.event(kind, elapsed, err))
	}
}

// context is what observers get with an event that no call is the cause of.
func (l *lease) context() context.Context {
	if l.observed == nil {
		return context.Background()
	}
	return l.observed.ctx
}

// event is an Event about a lease that is observed.
func (l *lease) event(kind EventKind, elapsed time.Duration, err error) Event {
	return Event{
		Kind: kind, ID: l.observed.id, Name: l.hold.Name, Owner: l.owner, Token: l.hold.Token,
		Shared: l.hold.Shared, Elapsed: elapsed, Err: err,
	}
}

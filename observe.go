package locker

import (
	"context"
	"time"
)

// EventKind says what an Event tells.
type EventKind int

// What an observer is told.
const (
	EventWaiting     EventKind = iota + 1 // the ticket stands in line and is not granted
	EventRejoined                         // the waiting ticket was gone after an outage; a new one stands at the tail
	EventAcquired                         // granted; Elapsed is the time waited
	EventReentered                        // one more handle on a lock that is held
	EventRenewed                          // the lease was renewed; Elapsed is the time the request took
	EventRenewFailed                      // a renewal failed and is tried again; Err says why
	EventLost                             // the lock was lost; Elapsed is the time held, Err the cause
	EventReleased                         // the last handle was released; Elapsed is the time held
)

var eventNames = [...]string{
	EventWaiting: "waiting", EventRejoined: "rejoined", EventAcquired: "acquired",
	EventReentered: "reentered", EventRenewed: "renewed", EventRenewFailed: "renew failed",
	EventLost: "lost", EventReleased: "released",
}

func (k EventKind) String() string {
	if k > 0 && int(k) < len(eventNames) {
		return eventNames[k]
	}
	return "unknown event"
}

// Event is one fact about one lock of a Client.
type Event struct {
	Kind    EventKind
	Name    string
	Owner   string
	Token   uint64        // 0 while waiting
	Shared  bool          // a reader or a permit
	Elapsed time.Duration // see the kinds
	Err     error         // see the kinds
}

func (c *Client) tell(ctx context.Context, e Event) {
	for _, f := range c.observers {
		f(ctx, e)
	}
}

// event is an Event about a lease.
func (l *lease) event(kind EventKind, elapsed time.Duration, err error) Event {
	return Event{
		Kind: kind, Name: l.hold.Name, Owner: l.owner, Token: l.hold.Token,
		Shared: l.hold.Shared, Elapsed: elapsed, Err: err,
	}
}

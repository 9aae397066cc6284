package locker

import (
	"time"
)

// EventKind says what an Event tells.
type EventKind int

// What an observer is told.
const (
	EventWaiting     EventKind = iota + 1 // the ticket is queued and not granted; Acquired or Failed follows
	EventRejoined                         // the waiting ticket was gone after an outage; a new one is queued at the tail
	EventAcquired                         // granted; Elapsed is the time of the call
	EventReentered                        // one more handle on a lock that is held
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
type Event struct {
	Kind    EventKind
	Name    string
	Owner   string
	Token   uint64        // 0 before the grant
	Shared  bool          // a reader or a permit
	Waited  bool          // Acquired, Reentered, Failed: EventWaiting was told before, and ends with this
	Elapsed time.Duration // see the kinds
	Err     error         // see the kinds
}

package conformance

import (
	"context"

	"github.com/lockerproject/locker/driver"
)

// Harness is what the suite needs to know of a driver and its store. Only Open
// is required; a case that needs what is nil is listed as not run.
type Harness struct {
	// Open opens a driver on the store under test as a process of its own
	// would: with connections of its own. The suite closes it.
	Open func(ctx context.Context) (driver.Driver, error)

	// OpenLink (optional) opens a driver whose way to the store can be cut.
	// Without it the suite cuts the way between the core and the driver, which
	// says nothing of heartbeats, sessions and connections: a driver that has
	// any of them gives OpenLink.
	OpenLink func(ctx context.Context) (driver.Driver, Link, error)

	// Server (optional) is the store itself, to be killed, started and paused.
	// It has to be one that keeps what it has acknowledged, and that serves
	// nobody else meanwhile.
	Server Server

	// Keys (optional) counts what the store holds for this driver's prefix:
	// keys, rows, znodes, sessions …
	Keys func(ctx context.Context) (int, error)

	// Bubble runs each case inside a bubble of testing/synctest, where waiting
	// takes no time. It is for drivers that touch no network, on stores whose
	// timers and channels belong to one lock name each.
	Bubble bool
}

// Link is a way to a store that can fail. Its methods may be called at any time.
type Link interface {
	// Cut stops everything in both directions, as a network that swallows
	// packets does: connections stay open and nothing comes.
	Cut()
	// Heal undoes Cut and DropReplies. What was lost may cost connections.
	Heal()
	// DropReplies lets requests through and loses the answers.
	DropReplies(on bool)
}

// Server is a store that can fail.
type Server interface {
	Kill()   // ends the store as SIGKILL does; what it acknowledged is kept
	Start()  // starts it again, and waits until it answers
	Pause()  // stops it as SIGSTOP does: connections stay open and nothing comes
	Resume() // undoes Pause
}

// Needs are the parts of a Harness that a case cannot do without.
type Needs uint8

// The parts of a Harness that are optional.
const (
	NeedLink Needs = 1 << iota
	NeedServer
	NeedKeys
)

// missing names the first need that h does not meet.
func (n Needs) missing(h Harness) (what string, ok bool) {
	switch {
	case n&NeedLink != 0 && h.OpenLink == nil:
		return "OpenLink", true
	case n&NeedServer != 0 && h.Server == nil:
		return "Server", true
	case n&NeedKeys != 0 && h.Keys == nil:
		return "Keys", true
	}
	return "", false
}

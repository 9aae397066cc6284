package conformance

import (
	"context"

	"github.com/lockerproject/locker/driver"
)

// Harness is what the suite needs to know of a driver and its store. Only Open
// is required; a case that needs what is nil is skipped, by name.
type Harness struct {
	// Open opens a driver on the store under test as a process of its own
	// would: with connections of its own. The suite closes it.
	Open func(ctx context.Context) (driver.Driver, error)

	// OpenLink (optional) opens a driver whose way to the store can be cut:
	// package conformance/link has one for stores with a network, and one for
	// those without.
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

	// Complete makes a failure of every case that cannot run, and of a suite
	// that has not proved all it knows to prove.
	Complete bool

	// Except names cases (topic/name) that do not apply, each with the reason. They
	// are skipped. It is for drivers that promise less, and say so.
	Except map[string]string

	logf func(format string, args ...any) // for figures worth a line in the log
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

// parts are their names, as they are written in a Harness.
var parts = []struct {
	need  Needs
	name  string
	given func(h Harness) bool
}{
	{NeedLink, "OpenLink", func(h Harness) bool { return h.OpenLink != nil }},
	{NeedServer, "Server", func(h Harness) bool { return h.Server != nil }},
	{NeedKeys, "Keys", func(h Harness) bool { return h.Keys != nil }},
}

// missing names what a case needs and h does not have.
func (n Needs) missing(h Harness) (names []string) {
	for _, p := range parts {
		if n&p.need != 0 && !p.given(h) {
			names = append(names, p.name)
		}
	}
	return names
}

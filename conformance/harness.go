package conformance

import (
	"context"

	"github.com/lockerproject/locker/driver"
)

// Harness is what the suite needs to know about a driver and its store. Only Open
// is required. A case that needs a field which is nil is skipped.
type Harness struct {
	// Open opens a driver on the store under test, with its own connections, as
	// another process would. The suite closes it.
	Open func(ctx context.Context) (driver.Driver, error)

	// OpenLink (optional) opens a driver whose connection to the store can be cut.
	// Package conformance/link has a Link for stores with a network and one for
	// stores without. Without OpenLink the suite cuts the connection between the
	// core and the driver, which shows nothing about heartbeats, sessions and
	// connections: a driver that has any of them must give OpenLink.
	OpenLink func(ctx context.Context) (driver.Driver, Link, error)

	// Server (optional) is the store itself, to be killed, started and paused. It
	// must keep what it has acknowledged, and serve nobody else meanwhile.
	Server Server

	// NewServer (optional) starts another store, and returns a harness whose Open,
	// OpenLink, Server and Keys are of that store. The cases that break the store, or
	// count its keys, run on stores of their own then, a few at a time, beside all
	// others. Without it they run alone, on Server. The store of Server is not broken
	// then, and need not keep anything. The harness removes the stores when the test
	// ends.
	NewServer func(ctx context.Context) (Harness, error)

	// Keys (optional) counts what the store holds for this driver's prefix:
	// keys, rows, znodes, sessions …
	Keys func(ctx context.Context) (int, error)

	// AtOnce (optional) is how many cases run at the same time on the store, instead
	// of sixteen: fewer where a few clients keep the store busy, more where many do not.
	AtOnce int

	// Bubble runs each case in a bubble of testing/synctest, where waiting takes no
	// time. It is for drivers that use no network, on stores whose timers and
	// channels each belong to one lock name.
	Bubble bool

	// Parallel makes Run call t.Parallel once the cases that measure times and count
	// goroutines have run: the others run beside the parallel tests of the package.
	Parallel bool

	// Complete makes every case that cannot run a failure.
	Complete bool

	// Except names cases (topic/name) that do not apply, each with the reason. They
	// are skipped. It is for drivers that document that they promise less.
	Except map[string]string

	logf func(format string, args ...any) // for figures in the log
	skip func(why string)                 // of a case that does not apply to the driver
}

// Link is a connection to a store that can fail. Its methods may be called at any
// time.
type Link interface {
	// Cut stops the traffic in both directions, as a network that drops packets
	// does: connections stay open and nothing arrives.
	Cut()
	// Heal ends Cut and DropReplies. Connections that have lost data may be reset.
	Heal()
	// DropReplies lets requests through and drops the answers.
	DropReplies(on bool)
}

// Server is a store that can fail.
type Server interface {
	Kill()   // ends the store as SIGKILL does; what it acknowledged is kept
	Start()  // starts it again, and waits until it answers
	Pause()  // stops it as SIGSTOP does: connections stay open and nothing arrives
	Resume() // ends Pause
}

// Needs are the optional fields of a Harness that a case needs.
type Needs uint8

// The optional fields of a Harness.
const (
	NeedLink Needs = 1 << iota
	NeedServer
	NeedKeys
)

// parts maps them to the names of the fields.
var parts = []struct {
	need  Needs
	name  string
	given func(h Harness) bool
}{
	{NeedLink, "OpenLink", func(h Harness) bool { return h.OpenLink != nil }},
	{NeedServer, "Server", func(h Harness) bool { return h.Server != nil }},
	{NeedKeys, "Keys", func(h Harness) bool { return h.Keys != nil }},
}

// missing returns the fields that a case needs and h does not have.
func (n Needs) missing(h Harness) (names []string) {
	for _, p := range parts {
		if n&p.need != 0 && !p.given(h) {
			names = append(names, p.name)
		}
	}
	return names
}

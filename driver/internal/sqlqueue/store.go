package sqlqueue

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A Store is the dialect of a database. Each method is one transaction, and is sent once: the engine sends it again where
// that is harmless. The requests of one process may be executed in any order and at the same time, but for a store that
// executes them in turn (see Take).
//
// A process is given by its ID, a positive number that nobody else has. The low 16 bits change while a driver runs (see
// [Channel]). Process is the one that asks: grants to its tickets are returned, and all other processes that are granted
// something are notified.
//
// No ticket is granted in a way that contradicts driver.Grantable, and every method that removes a ticket, or
// finds one that has expired, grants what becomes grantable by that, in the same transaction. A ticket that waits has
// expired if its process has no row, or one that has expired; that row is then removed before the ticket, so that no
// later heartbeat revives it. A lease that is over is never made longer, nor does a request that waited for a lock of the
// database do so when the lease ended meanwhile.
//
// A ticket that waits is granted for its TTL, or until the row of its process expires if that is sooner: a provisional
// lease, until Renew makes it a whole one.
type Store interface {
	// Take takes a ticket, grants it, queues it if r.Wait is set, or refuses it. If the ticket is already there, it answers
	// for that, and a lease of it lasts for r.TTL from now. A provisional one stays so, but in a store that executes requests in
	// turn: this one may be late, and the waiter not know of the grant. It takes no ticket, and answers Late, if the
	// database's clock shows a time after until, in microseconds; 0 is always late. It calls until when the statement is about to
	// be sent, so that a wait for a connection does not count, and again if it sends another one after a refusal.
	// A store that executes the requests of a process in the order in which they are sent does not call until: no request takes
	// effect after a later one was answered.
	Take(ctx context.Context, process int64, r driver.Request, until func() int64) (Answer, error)

	// Remove removes a ticket, held or waiting, and grants the next. The token may be 0.
	Remove(ctx context.Context, process int64, h driver.Hold) (Removal, error)

	// Break is Remove by the token, whoever owns the ticket. It notifies the ticket's process of the loss.
	Break(ctx context.Context, process int64, name string, token uint64) (Removal, error)

	// Renew makes leases whole, and end no earlier than their TTL from now. It returns which of them it has renewed, by their
	// indexes: the other tickets are not held any more. There are at most RenewMost. A ticket has the ID and the token of its hold,
	// here and in Shorten: with another token it was taken anew, by a late request, and the holder does not know.
	Renew(ctx context.Context, rs []driver.Renewal) (renewed []int, err error)

	// Shorten makes a lease end at most left from now, and notifies the process of the first waiter that its queue is due
	// then. It reports false if the ticket is not held any more.
	Shorten(ctx context.Context, h driver.Hold, left time.Duration) (held bool, err error)

	// Heartbeat makes the row of a process expire life from now, and counts. It returns the tickets of the process that
	// have a provisional lease. The number is 0 if the row has expired or, without create, is not there.
	Heartbeat(ctx context.Context, process int64, life time.Duration, create bool) (Heartbeat, error)

	// Mine returns the tickets of the process that have a provisional lease and, with all, those that wait. It fails on a server
	// that takes no writes, such as a standby or a demoted primary, whose rows may be old: what they lack would be lost.
	Mine(ctx context.Context, process int64, all bool) (Mine, error)

	// Leave removes the row of a process, to whose tickets that is the end. Close gives it 100 ms.
	Leave(ctx context.Context, process int64) error

	// Due reports when queues are due: one Due for each name, in order, at most DueMost. It changes nothing.
	Due(ctx context.Context, process int64, names []string) ([]Due, error)

	// Advance removes what has expired at the head of a queue, and grants what becomes grantable.
	Advance(ctx context.Context, process int64, name string) ([]Grant, error)

	// Sweep removes expired tickets wherever they are in a queue, and expired rows of processes. It visits the next few
	// queues in an order of the store's, after the one that it returned last; "" is the first call, and the result
	// of the last one. It waits for nobody: busy counts the queues in which something could not be removed now.
	Sweep(ctx context.Context, after string) (last string, busy int64, err error)

	// SweepTurn gives one process at a time the turn to sweep, for life. It returns 0 to the process that has it, and to others
	// how long it is until the next may have it. With done nobody has to sweep for life.
	SweepTurn(ctx context.Context, life time.Duration, done bool) (left time.Duration, err error)

	// Queue returns the live tickets of a name, in order, and Names the names that have any.
	Queue(ctx context.Context, name string) ([]driver.Ticket, error)
	Names(ctx context.Context) ([]string, error)

	// Tables reads what the database has of the tables, when a request has failed because some are missing, and Create creates
	// what is missing. Many programs may do so at once. It leaves tables of another edition as they are.
	Tables(ctx context.Context) (Tables, error)
	Create(ctx context.Context) error

	// Class says what an error of these methods means. It is not asked about the end of the request's context.
	Class(err error) Class
}

// Bounds of single requests.
const (
	RenewMost = 5000
	DueMost   = 1000
)

// Tables is what a database has.
type Tables struct {
	Tickets  bool   // the table of tickets
	Comment  string // on that: see Edition
	Complete bool   // all that belongs to it is there, too
}

// A Class is what an error says about a request. Without any bit it was perhaps executed, and sending it again is of no use.
type Class uint8

const (
	// Undone says that the request certainly had no effect, nor will it have one: the database said so, or it was not sent.
	Undone Class = 1 << iota
	// Passing says that it may succeed if it is sent again. With Undone that is harmless: after a deadlock, for example. Without it
	// the connection broke, and the request may have been executed, or may be later.
	Passing
	// Down says that the database does not answer, or refuses everybody (driver.ErrUnavailable).
	Down
	// Missing says that tables are missing, or are of another version.
	Missing
)

// An Answer is that to Take.
type Answer struct {
	Sent   time.Time // before the statement was sent; zero: it was not. It is set beside an error, too
	Result Result
	Token  uint64        // of Granted
	Due    time.Duration // of Queued: until the head of the queue may expire
	Now    int64         // of Late: the database's clock, in microseconds
	Grants []Grant       // to other tickets of the process
}

// A Result is what Take has done.
type Result uint8

// What Take may answer.
const (
	Granted      Result = iota + 1
	Queued              // it waits
	Refused             // it cannot be granted, and does not wait
	Unregistered        // it would have to wait, and the process has no row
	Late                // the request arrived too late
)

// A Removal is the answer to Remove and Break.
type Removal struct {
	Found  bool // the ticket was there, and its lease was not over
	Grants []Grant
}

// A Grant says that a ticket that waited has been granted.
type Grant struct {
	ID    string
	Token uint64
	// Heartbeat is the number of the last heartbeat of the process before the grant: the provisional lease lasts for the TTL
	// or the life of the process, whichever is shorter, from when that was sent at least. 0: unknown.
	Heartbeat int64
}

// A Heartbeat is the answer to one.
type Heartbeat struct {
	Number int64
	Mine
}

// Mine is what the database has of the tickets of a process.
type Mine struct {
	Sent    time.Time // before the statement was sent
	Tickets []Ticket
}

// A Ticket is one of them.
type Ticket struct {
	ID    string
	Token uint64
	Held  bool          // under a provisional lease
	Left  time.Duration // of that, counted from Sent
}

// A Due says when a queue is due: when something at its head expires.
type Due struct {
	In    time.Duration // less than 0: there is something to do now
	First bool          // the first waiter is of this process
}

// A Notifier is a Store that notifies processes of what happens to their tickets. Without it the engine asks every 2 to
// 250 ms while the process waits.
type Notifier interface {
	// Listen receives notices for the process (see [Channel]) until it cannot any more, or ctx ends, and passes them on. It
	// calls in.Ready when everything that happens from then on is noticed.
	Listen(ctx context.Context, process int64, in *Inbox) error
}

// Channel is the part of a process's ID that is the same as long as its driver is open: it names what the process listens on.
func Channel(process int64) int64 { return process / processIDs }

// processIDs is the number of IDs of one driver.
const processIDs = 1 << 16

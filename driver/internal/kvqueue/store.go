package kvqueue

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Store is what the engine asks of a store, numbered for its tests and drivers.
//
// A method sends one request, or a few, and returns when ctx ends at the latest. It
// may be called from many goroutines at once. The engine has bounded ctx; it sends
// requests again where that helps, and tells callers of errors by way of Explain.
//
// Errors that a method may return, apart from those of the store itself:
//
//   - [Refused] marks one after which the request was not done and never will be;
//     every other error of Put, Delete, Withdraw and Move is an unknown outcome.
//   - [ErrSessionOver] says that the session has ended. The store must be sure.
//   - [ErrChanged] says that the condition of a Put does not hold any more.
//   - [driver.ErrLost] says that the entry is not there.
type Store interface {
	// Agree makes sure that all who use the store keep locks in it in the same way
	// (package protocol); with write it says how, where nobody has. It is called
	// before every operation, and after the first costs nothing (S1).
	Agree(ctx context.Context, write bool) error

	// Class is the length of session that a request needs: the TTL or the minimum
	// hold, rounded up to what the store can give. Tickets of one class share a
	// session. An error, such as ErrUnsupported, refuses the request (S2).
	Class(ctx context.Context, r *driver.Request) (time.Duration, error)

	// Open makes a session. It lives for its TTL after each KeepAlive that was
	// answered, counted from when that was sent, or longer (S3).
	Open(ctx context.Context, class time.Duration) (Session, error)
	// KeepAlive starts a session's TTL anew and returns it: it may have changed (S4).
	KeepAlive(ctx context.Context, session string) (time.Duration, error)
	// End ends a session, and with it all its entries (S5).
	End(ctx context.Context, session string) error

	// Key is the key of a ticket. A slot is a small number which no other ticket of
	// this session and name has. Keys are used again, since stores keep something of
	// every key that was ever used (S6).
	Key(name, session string, slot int, shared bool) string

	// Put creates an entry. It does nothing if the ticket was withdrawn (S11), or if
	// p.If does not hold. The engine never asks twice for one ticket: one whose Put
	// was not answered is withdrawn before its request is put again (S7).
	Put(ctx context.Context, p *Put) (Placed, error)
	// Look reports ErrNotAcquired if a ticket put now would have to wait. It writes
	// nothing. Otherwise it returns a condition for Put: that none has been queued
	// since that could block the ticket (S8).
	Look(ctx context.Context, r *driver.Request) (cond any, err error)

	// Delete removes an entry if it is still the one with that number, or else
	// answers ErrLost. So a deletion that arrives late removes nobody else's (S9).
	Delete(ctx context.Context, t *Ticket) error
	// Withdraw removes the entry of a ticket whose Put was not answered, by its key,
	// and keeps that Put from creating it later. It reports ErrLost where there was no
	// entry (S10, S11).
	Withdraw(ctx context.Context, t *Ticket) error
	// Move gives an entry to another session, with its number. It must be possible
	// to ask again (S12).
	Move(ctx context.Context, t *Ticket, to string) error

	// Read reads a queue as it is at an instant after the call began: Complete is not
	// less than the number of any ticket that was put before (S13).
	Read(ctx context.Context, name string) (Snapshot, error)
	// Missing returns the indices of the tickets, all of one session, whose entries
	// are not there; of these it must be sure (S14).
	Missing(ctx context.Context, session string, ts []Ticket) ([]int, error)

	// Aim chooses what to watch for a ticket that is blocked by some others, in
	// order, of which all have to go or, with some, a part may be enough. The zero
	// Entry is the whole queue. It sends nothing (S15).
	Aim(blockers []Entry, some bool) Entry
	// Watch calls tell when what was aimed at changes, until ctx ends, and perhaps
	// when other entries of the queue do. What has happened after the queue was known
	// as of w.Complete, and before Watch was called, is told too. It may return nil
	// when it has told something. If it does without, there was no news for long, or
	// something is not as it was: the engine reads the queue. tell may send requests
	// (S16).
	Watch(ctx context.Context, w Watching, tell func(Event)) error
	// Losses calls tell when entries of a session have gone by anybody's doing, until
	// ctx ends, and once with Check when it has begun to listen. Of ended sessions it
	// may call [SessionOver]. It is called when the session has carried a ticket, that
	// waits or is held, for 200 ms. With Options.OneLossWatch it is called once for all
	// sessions, with "", when a ticket was held for that long (S17).
	Losses(ctx context.Context, session string, tell func(Loss)) error

	// Tickets reads a queue with all that it holds, in order (S18).
	Tickets(ctx context.Context, name string) ([]Record, error)
	// Remaining sets Remaining of some records, which hold the lock, as well as the
	// store knows (S19).
	Remaining(ctx context.Context, rs []*Record) error

	// Temporary reports whether an error means that the store is to be asked again
	// in a moment: it has answered, and cannot serve anybody right now (S20).
	Temporary(err error) bool
	// Explain is an error as a caller is told: marked with ErrUnavailable where that
	// is so. Of an error that says only that a context has ended it makes one that
	// says why the store has not answered; of nil too, if the store cannot be reached
	// now, else nil. It takes 15 ms at most (S21).
	Explain(err error) error
}

var (
	// ErrSessionOver says that a session has ended, and that a request for it was
	// not done.
	ErrSessionOver = errors.New("the session in the store is over")
	// ErrChanged says that the condition of a Put does not hold: nothing was done.
	ErrChanged = errors.New("the queue has changed")
)

// Refused marks an error after which the request was not done and will not be.
func Refused(err error) error {
	if err == nil {
		return nil
	}
	return &refused{err}
}

type refused struct{ error }

func (r *refused) Unwrap() error { return r.error }

// isRefused reports whether nothing was done.
func isRefused(err error) bool {
	return errors.As(err, new(*refused)) || errors.Is(err, ErrSessionOver) || errors.Is(err, ErrChanged) ||
		errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost)
}

// Session is a session as it was opened.
type Session struct {
	ID  string
	TTL time.Duration // as granted
}

// Entry is one entry of a queue. Its number is larger than that of all that were put
// before, and no other entry ever has it: it is the ticket's fencing token, too. Its key
// is unique among the live ones of the store.
type Entry struct {
	Key     string
	Number  uint64
	Version uint64 // for the store
	Shared  bool
	Limit   int // 0 if the store does not tell that of others' entries without reading them
}

// Ticket is an entry of this driver as requests name it.
type Ticket struct {
	Entry   // Number 0: not known
	Name    string
	ID      string
	Session string
}

// Put is the request to create an entry.
type Put struct {
	Ticket
	Request *driver.Request
	Class   time.Duration
	If      any  // what Look returned; nil: in any case
	Brief   bool // the ticket will wait, and there is no need to read the queue
}

// Placed is the answer to a Put.
type Placed struct {
	Number  uint64
	Version uint64
	// Granted says that the ticket is granted by the rule of driver.Grantable, in the
	// queue as it was when it was put. Not said of a Brief one.
	Granted bool
	// Queue is the queue as it was when the entry was put, which is in it, or later.
	// Its Complete is the number at least. It may be nil, above all if the ticket is
	// granted, or if the queue is long.
	Queue *Snapshot
}

// Snapshot is a queue as it was at an instant, in any order. All live entries with
// numbers up to Complete are in it; others may be. Complete does not go back from one
// Read to the next unless the store has lost its past, as by a restore; the engine then
// forgets what it knew.
type Snapshot struct {
	Complete uint64
	Entries  []Entry
}

// Watching is what to watch.
type Watching struct {
	Name     string
	Aim      Entry
	Complete uint64 // the queue is known as of this
}

// Event is news of a queue: entries that have gone, or a newer snapshot, or both.
type Event struct {
	Gone  []Gone
	Queue *Snapshot
}

// Gone says that the entry with this key has gone, if its number is less than Before.
type Gone struct {
	Key    string
	Before uint64
}

// Loss is news of entries of this driver: one that has gone or, with Check, that any
// may have.
type Loss struct {
	Name  string
	Gone  Gone
	Check bool
}

// Record is an entry with what else the store knows of it.
type Record struct {
	Ticket
	Shown driver.Ticket // Held is the engine's to set
}

// Options are what differs between stores.
type Options struct {
	Store Store
	// Losses asks for Store.Losses, OneLossWatch for one of all sessions.
	Losses, OneLossWatch bool
	// LocalWait is how long a ticket of this driver that blocks another one is not
	// watched: its release is known without.
	LocalWait time.Duration
	// Recheck is after how long without news a queue is read again, and its watch made
	// anew, at first. It doubles up to a minute.
	Recheck time.Duration
	// LongQueue: a queue of more entries than this, 64 unless set, is not read with each
	// put of a ticket that will wait behind another one of this driver.
	LongQueue int
}

package kvqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Store is what the engine asks of a store. The rules are numbered for tests and drivers.
//
// A method sends one request, or a few, and returns when ctx ends at the latest. It
// may be called from many goroutines at once. The engine has bounded ctx. It repeats
// requests where that helps, and passes errors to callers by way of Explain.
//
// Errors that a method may return, apart from those of the store itself:
//
//   - [Refused] marks an error after which the request was not done and never will be;
//     any error that is not of this list leaves the outcome of Put, Delete, Withdraw and
//     Move unknown.
//   - [ErrSessionOver] says that the session has ended. The store must be sure.
//   - [ErrReleased] says that the ticket of a Put was withdrawn before.
//   - [ErrChanged] says that the condition of a Put does not hold any more.
//   - [ErrOccupied] says that there is an entry with the key of a Put. Whose is not known.
//   - [driver.ErrLost] says that the entry is not there.
type Store interface {
	// Agree makes sure that all users of the store keep locks in it in the same way
	// (package protocol). With write it writes how, if nobody has yet. It is called
	// before each Acquire and [Ask], and after the first success costs nothing (S1).
	Agree(ctx context.Context, write bool) error

	// Class returns the length of session that a request needs: the TTL or the minimum
	// hold, rounded up to what the store can give. Tickets of one class share a
	// session. An error, such as ErrUnsupported, refuses the request (S2).
	Class(r *driver.Request) (time.Duration, error)

	// Open makes a session. It lives for at least its TTL from when Open, or a
	// KeepAlive that was answered, was sent (S3).
	Open(ctx context.Context, class time.Duration) (Session, error)
	// KeepAlive starts a session's TTL anew (S4).
	KeepAlive(ctx context.Context, session string) error
	// End ends a session, and with it all its entries (S5).
	End(ctx context.Context, session string) error

	// Key returns the key of a ticket. A slot is a small number that no other ticket of
	// this session and name has. Keys are used again, because stores keep something of
	// every key that was ever used (S6).
	Key(name, session string, slot int, shared bool) string

	// Put creates an entry. It does nothing if the ticket was withdrawn (S11), or if
	// p.If does not hold. It never takes over an entry: if there is one with that key,
	// it returns ErrOccupied. The engine never puts a ticket twice: if a Put was not
	// answered, the ticket is withdrawn before its request is put again (S7).
	Put(ctx context.Context, p *Put) (Placed, error)
	// Look returns ErrNotAcquired if a ticket put now would have to wait. It writes
	// nothing. Otherwise it returns a condition for Put: that no ticket has been
	// queued since that could block this one (S8).
	Look(ctx context.Context, r *driver.Request) (cond any, err error)

	// Delete removes an entry if it still has that number; otherwise it returns
	// ErrLost. So a late deletion removes no other ticket's entry. It reports whether
	// the entry of next, which may be nil, was there at that moment (S9).
	Delete(ctx context.Context, t, next *Ticket) (nextThere bool, err error)
	// Withdraw removes the entry of a ticket whose Put was not answered, by its key,
	// and keeps that Put from creating it later. It returns ErrLost if there was no
	// entry (S10, S11).
	Withdraw(ctx context.Context, t *Ticket) error
	// Move gives an entry, with its number, to another session, whichever it is on. A request
	// that is late, or repeated, does no harm: the engine asks only for sessions on which the
	// entry may end (S12).
	Move(ctx context.Context, t *Ticket, to string) error

	// Read reads a queue as it is at an instant after the call began: Complete is not
	// less than the number of any ticket that was put before the call (S13).
	Read(ctx context.Context, name string) (Snapshot, error)
	// Missing returns the indices of the tickets whose entries are certainly not
	// there, in whichever session. They are Options.MissingMost at most (S14).
	Missing(ctx context.Context, ts []Ticket) ([]int, error)

	// Watch calls report when w.Aim changes, until ctx ends. It may also report other
	// entries of the queue. It reports what has happened since w.Complete, even if
	// that was before the call. It may return nil after it has called report. If it
	// returns nil without, there was no news for long, or it cannot say what has
	// changed: the engine reads the queue. report may send requests (S15).
	Watch(ctx context.Context, w Watching, report func(Event)) error
	// Losses calls report when another process has broken a ticket of a session, and once
	// when it has begun to watch for that, until ctx ends. If the session ends, it returns
	// ErrSessionOver. The engine calls it when the session is 200 ms old and
	// has a ticket (S16).
	Losses(ctx context.Context, session string, report func()) error

	// Tickets reads a queue with all that it holds, in order. Shown.Remaining of those that
	// hold the lock is as exact as the store knows it (S17).
	Tickets(ctx context.Context, name string) ([]Record, error)

	// Temporary reports whether the request should be repeated in a moment, because
	// the store has answered that it cannot serve anybody right now (S18).
	Temporary(err error) bool
	// Explain returns an error as the caller gets it, marked with ErrUnavailable if
	// the store is. If err says only that a context has ended, and the store's client
	// knows why the store has not answered, Explain returns that. It takes 15 ms at most (S19).
	Explain(err error) error
}

var (
	// ErrSessionOver says that a session has ended, and that a request for it was
	// not done.
	ErrSessionOver = errors.New("the session in the store is over")
	// ErrReleased says that a ticket was withdrawn, or released, before it was queued, and never will be.
	ErrReleased = fmt.Errorf("%w: the ticket was released before it was queued", driver.ErrLost)
	// ErrChanged says that the condition of a Put does not hold: nothing was done.
	ErrChanged = errors.New("the queue has changed")
	// ErrOccupied says that there is, or may come to be, an entry with the key of a Put: the
	// store's client has sent the request twice, and the first has created it, or still may,
	// or it is what is left of an earlier ticket that was changed by hand. Its number is not this
	// ticket's. The engine withdraws the ticket, which removes the entry, and puts it again.
	ErrOccupied = errors.New("the key of the ticket is in use")
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

// Entry is one entry of a queue. Its number is larger than the numbers of all entries
// that were put before, and no other entry ever has it. The number is also the ticket's
// fencing token. The key is unique among the live entries of the store.
type Entry struct {
	Key     string
	Number  uint64
	Version uint64 // for the store
	Shared  bool
	Limit   int // may be 0 if the store would have to read the entry to know it
}

// Ticket is an entry of this driver as requests name it.
type Ticket struct {
	Entry   // Number 0 means not known
	Name    string
	ID      string
	Session string
}

// Put is the request to create an entry.
type Put struct {
	Ticket
	Request *driver.Request
	Class   time.Duration
	If      any  // what Look returned; nil means no condition
	Brief   bool // the ticket will wait, and there is no need to read the queue
}

// Placed is the answer to a Put.
type Placed struct {
	Number  uint64
	Version uint64
	// Granted says that driver.Grantable grants the ticket in the queue as it was when
	// the ticket was put. A Brief put does not set it.
	Granted bool
	// Queue is the queue, with the entry, as it was when the entry was put or later.
	// Its Complete is at least Number. It may be nil, above all if the ticket is
	// granted, or if the queue is long.
	Queue *Snapshot
}

// Snapshot is a queue as it was at an instant, in any order. All live entries with
// numbers up to Complete are in it; the engine ignores others. Complete does not decrease from one
// Read to the next unless the store has lost its past, for example by a restore. Then
// the engine forgets what it knew.
type Snapshot struct {
	Complete uint64
	Entries  []Entry
}

// Watching is what to watch.
type Watching struct {
	Name     string
	Aim      Entry         // the zero Entry means the whole queue
	Complete uint64        // the engine knows the queue up to this
	Bound    time.Duration // for each request that is no watch: twice what the last reading took, or more
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

// Record is an entry with everything else that the store knows of it.
type Record struct {
	Ticket
	Shown driver.Ticket // the engine sets Held
}

// Options are what differs between stores.
type Options struct {
	Store Store
	// LookFor is for how many tickets a renewal of a session looks if the watch for losses
	// shows that none is lost; the next renewals look for the others. It is 64 unless set.
	LookFor int
	// MissingMost is how many tickets a call of Missing gets, at most. It is 64 unless set.
	MissingMost int
	// NearHead is with how many blocking entries, at most, the whole queue is watched for a
	// waiter. If there are more, and all have to go, only the last of them is watched.
	NearHead int
	// LocalWait is for how long the engine watches nothing if the tickets whose end it waits
	// for are all of this driver, because it knows of their release without.
	LocalWait time.Duration
	// Recheck is for how long a watch may have no news before the queue is read again
	// and the watch made anew. It doubles each time, up to a minute.
	Recheck time.Duration
	// LongQueue is 64 unless set. If a queue has more entries, it is not read with the
	// put of a ticket that will wait behind another one of this driver.
	LongQueue int
}

package driver

import (
	"context"
	"time"
)

// Driver is what a store implements. The package comment is its
// specification; the numbers refer to it.
//
// A driver may also implement [BatchRenewer], [Lister], [Breaker],
// [LossNotifier], [Shortener], [Bounder], [Pinger], [ServerVersioner] and fmt.Stringer. The
// comment of each says what the core does without it.
type Driver interface {
	// Acquire takes a ticket and, with r.Wait, waits until it is granted
	// (D4–D9, D11).
	Acquire(ctx context.Context, r Request) (Grant, error)

	// Renew extends the lease of a held ticket to at least ttl from now (D12).
	Renew(ctx context.Context, h Hold, ttl time.Duration) error

	// Release removes a ticket, held or waiting (D13).
	Release(ctx context.Context, h Hold) error

	// Inspect returns the queue of name, in order (D15). The queue of a name
	// that nobody uses is empty.
	Inspect(ctx context.Context, name string) ([]Ticket, error)

	// Close closes what the driver has opened (D17).
	Close() error
}

// A Request asks for a ticket.
type Request struct {
	Name string // the lock (D2)
	ID   string // the ticket, unique for ever (D1)

	Owner string // shown by Inspect; at most 512 bytes of UTF-8
	Note  string // shown by Inspect; at most 512 bytes of UTF-8

	Shared bool // a reader, or one of Limit permits
	Limit  int  // with Shared: how many at once; 0 means any number

	TTL     time.Duration // length of the lease, at least Bounds.MinTTL
	Renewed bool          // the core will renew; false: a fixed lease
	Wait    bool          // wait in the queue; false: now or ErrNotAcquired

	// MinHold, if greater than zero, is how long the ticket stays after its
	// grant, whatever happens to this process or its driver (D20).
	MinHold time.Duration

	Joined func() // called once when the ticket is queued and not granted; may take long (D7); may be nil
}

// Hold returns the Hold that identifies the ticket of the request.
func (r Request) Hold(token uint64) Hold {
	return Hold{Name: r.Name, ID: r.ID, Token: token, Shared: r.Shared}
}

// Ticket returns the request as Inspect shows it.
func (r Request) Ticket(token uint64) Ticket {
	return Ticket{
		ID: r.ID, Token: token, Owner: r.Owner, Note: r.Note,
		Shared: r.Shared, Limit: r.Limit,
	}
}

// A Grant is the answer to a request that was granted.
type Grant struct {
	Token uint64    // the ticket's number, the fencing token (D3)
	Asked time.Time // from when the lease counts, by the monotonic clock (D11)

	// TTL is the longest lease that this ticket can have; 0: any. A session gives all its tickets
	// such a limit: its own length. If TTL is less than requested, the lease has that length. A
	// longer lease, also one that is extended later, is renewed by the core until its end, and ends
	// earlier if the holder dies or is cut off.
	TTL time.Duration

	// Claim is the length of a provisional lease: a shorter lease that a store
	// gives to a waiter that has not yet acknowledged its grant, so that a dead
	// waiter does not block the queue for longer. It counts from Asked. The core
	// renews the lease, for the whole TTL, well before that. 0: the lease has its
	// whole length.
	Claim time.Duration

	// Degraded is why a substitute for the store granted the ticket, as the secondary of
	// compose.Fallback does: two may hold the name. It is for observers; a driver of one
	// store never sets it.
	Degraded error
}

// A Hold identifies a ticket in Renew and Release.
type Hold struct {
	Name   string
	ID     string
	Token  uint64 // 0 if Acquire did not return it
	Shared bool
}

// A Ticket is one entry of a queue.
type Ticket struct {
	ID        string
	Token     uint64
	Owner     string
	Note      string
	Shared    bool
	Limit     int // with Shared: 0 means any number
	Held      bool
	Since     time.Time     // of the grant or, for a waiter, of queueing; zero if unknown
	Remaining time.Duration // of a holder's lease; 0 for a waiter
}

// Package driver is the seam between the portable core of locker and a store.
//
// A store is used in one way: each lock name has a line, whoever wants the
// lock takes a ticket, and the ticket is granted by the rule of [Grantable]. A
// driver maps that onto its store and holds no policy: options, re-entry,
// the renewal schedule, the trust window, undoing of failed acquisitions and
// the words of errors are the core's.
//
// The sentences below are the specification. The conformance suite proves
// them and cites them by number; a driver that passes may be swapped for any
// other.
//
// # Tickets
//
// D1. A ticket is known by its name and its ID. The core makes the ID, unique
// for ever, of at most 64 bytes of [0-9a-z-], so that a request may be asked
// again: an Acquire whose ticket already stands in line answers for that
// ticket and does not queue a second one.
//
// D2. Two different names are two different locks, and no name reaches the
// inside of another's line. A name is any valid UTF-8 of 1 to 512 bytes: the
// core has checked it. Case, trailing blanks, slashes, braces and NUL count.
//
// D3. The store numbers tickets. Numbers of one name strictly grow over every
// ticket that was ever granted, also after the line was empty, the server was
// restarted or idle keys were removed. The number is the place in line and
// the fencing token.
//
// # Grants
//
// D4. A ticket is granted exactly when [Grantable] says so of the live line.
// The decision is the store's, or a client's on a view of the line that the
// store has ordered; never a client's clock's.
//
// D5. Grants follow the line: no caller that could wait, and none that cannot
// (Request.Wait false), overtakes a live ticket that blocks it.
//
// D6. With Request.Wait false Acquire never waits for a grant: it answers with
// a grant or with [ErrNotAcquired], and the latter leaves no ticket.
//
// D7. With Request.Wait true Acquire returns when the ticket is granted or ctx
// ends. It calls Request.Joined once, as soon as it knows that the ticket
// stands in line ungranted. Until then a store that cannot be reached is an
// error; from then on it is waited for, until ctx ends, and the error at
// ctx's end wraps both context.Cause(ctx) and the store's last error.
//
// D8. A waiting ticket lives only while its process shows that it lives; when
// the process dies its tickets leave the line within Bounds.Liveness, all of
// them together, however many. A waiter whose ticket has left the line
// (an outage longer than that) gets [ErrLost], and the core joins again.
//
// D9. Any error of Acquire but ErrNotAcquired may leave a ticket: the core then
// calls Release with the ID. A driver need not clean up itself.
//
// # Leases
//
// D10. A granted ticket is held under a lease of Request.TTL on the store's
// clock. It ends by itself, not before TTL after the store granted it, and the
// line moves on within Bounds.Crash after the last renewal at the latest.
// No request of the holder is needed for that. A store that cannot give so
// short a lease, or that knows only sessions, may keep the ticket longer while
// the process lives: the core calls Release when the time of a lease is over.
//
// D11. Grant.Asked is a reading of the monotonic clock taken before the
// request that started the present lease was sent. Someone who waited learns
// of the grant later than it was made: the driver makes sure that the lease
// runs for its TTL from Asked at least, by a request of its own or by
// counting from one that the store had executed before it granted. Where it
// grants a shorter claim first, Grant.Claim says so and the core renews in time.
//
// D12. Renew makes the lease end no earlier than ttl after the store executes
// it. It never shortens: a renewal that arrives late, after one for longer,
// changes nothing. Of a ticket that is not there (any more), or not held, it
// answers ErrLost and changes nothing.
//
// D13. Release removes the ticket, held or waiting, and grants whoever is next
// without anybody's polling interval. Of a ticket that is not there it answers
// ErrLost and touches nobody else's. Where the client of the store may
// have sent a request twice and the first may have done it, it answers nil.
//
// D14. An answer that never came is an error, never ErrLost and never
// ErrNotAcquired: those two are said only when the store said so.
//
// # Other
//
// D15. Inspect returns the live line in order. Remaining is the rest of a
// holder's lease, Since the time of its grant or, for a waiter, of joining, as
// well as the store knows.
//
// D16. All methods may be called from many goroutines at once. Every method
// returns soon after its ctx ends, whatever the store does.
//
// D17. Close stops the driver's goroutines, ends waiting Acquires with
// [ErrClosed], and closes what the driver opened itself, never a
// client that the user gave it. The core has released what was held. A second
// Close returns nil.
//
// D18. When every ticket is gone the store holds nothing that grows with the
// number of names that were used.
//
// D19. Errors are the store's own, wrapped at most to keep errors.Is working:
// the core adds store, verb and name. No error holds a password.
package driver

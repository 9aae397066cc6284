// Package driver is the driver interface: what the portable core of locker asks
// of a store.
//
// Every store is used in the same way. Each lock name has a queue. Whoever
// wants the lock takes a ticket, to which the store gives a number that only
// grows, and the ticket is granted by the rule of [Grantable]. A driver maps
// that onto its store and holds no policy: options, re-entry, the renewal
// schedule, validity, the removal of tickets that nobody wants any more, and
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
// again: an Acquire whose ticket is already queued answers for that ticket and
// does not queue a second one.
//
// D2. Two different names are two different locks, and no name reaches the
// inside of another's queue. A name is any valid UTF-8 of 1 to 512 bytes: the
// core has checked it. Case, trailing blanks, slashes, braces and NUL count.
//
// D3. The store numbers tickets. Numbers of one name strictly grow over every
// ticket that was ever granted, also after the queue was empty, the server was
// restarted or idle keys were removed. The number orders the queue and is the
// fencing token.
//
// # Grants
//
// D4. A ticket is granted exactly when [Grantable] says so of the live queue.
// The decision is the store's, or a client's on a view of the queue that the
// store has ordered; it never depends on a client's clock. A waiter may claim
// its own grant once its turn has come, within the time of D13.
//
// D5. Grants follow the queue: no caller, whether it would wait or not
// (Request.Wait), overtakes a live ticket that blocks it.
//
// D6. With Request.Wait false Acquire never waits for a grant: it answers with
// a grant or with [ErrNotAcquired]. While a live ticket blocks it, such a request
// is never queued, not even for a moment: nobody else is refused or made to wait
// because of it, and a process that dies in the middle of it leaves nothing.
//
// D7. With Request.Wait true Acquire returns when the ticket is granted or ctx
// ends. It calls Request.Joined once, as soon as the store has said that the
// ticket is queued and not granted; the core's observers run inside that call.
// Until then a store that cannot be reached is an error; from then on Acquire
// waits for the store to come back, until ctx ends. The error at ctx's end
// wraps context.Cause(ctx) and, if the store has not answered since, the
// store's last error.
//
// D8. A waiting ticket lives only while its process shows that it lives, from
// its first moment to its last. When the process dies its tickets leave the
// queue within Bounds.Liveness of their TTL, all of them together, however many. A waiter
// whose ticket has left the queue (after an outage longer than that) gets
// [ErrLost], and the core queues again.
//
// D9. Any error of Acquire may leave a ticket, except ErrNotAcquired and one
// marked by [NoTicket]: the core then calls Release with the ID until the
// ticket is gone. A driver need not clean up itself.
//
// # Leases
//
// D10. A granted ticket is held under a lease of Request.TTL on the store's
// clock: the clock of the server, or for an embedded store that the processes
// of one machine share, that machine's clock. The lease ends by itself, not
// before TTL after the store granted it (unless Grant.TTL or Bounds.MaxTTL says
// less), and the queue moves on within Bounds.Crash after the last renewal at the
// latest. No request of the holder is needed for that. A store that cannot give so short a lease, or that knows
// only sessions, may keep the ticket longer while the process lives: the core
// calls Release when the time of a lease is over.
//
// D11. Grant.Asked is a reading of the monotonic clock taken before the
// request that started the present lease was sent. A waiter learns of its
// grant later than it was made: the driver makes sure that the lease
// runs for its TTL from Asked at least, by a request of its own or by
// counting from one that the store had executed before it granted. Where it
// grants a shorter provisional lease first, Grant.Claim says so and the core
// renews in time.
//
// D12. Renew makes the lease end no earlier than ttl after the store executes
// it. It never shortens: a renewal that arrives late, after one for longer,
// changes nothing. Of a ticket that is not there, not held, or whose lease is
// over it answers ErrLost and changes nothing: a lease that has ended is never
// revived, whether or not somebody else was granted since.
//
// D13. Release removes the ticket, held or waiting, and the waiter that is
// next is granted: with the store and the waiter's process idle, its Acquire
// returns within 100 ms after Release did. Of a ticket that
// is not there Release answers ErrLost and touches nobody else's; where the
// client of the store may have sent the request twice and the first may have
// done it, it answers nil. The core may ask again, while an earlier Release or
// Acquire of the same ticket is unanswered, and long after: it asks until it has
// an answer. A ticket must not outlive that answer, whatever else shares its
// session.
//
// D14. An answer that never came is an error, never ErrLost and never
// ErrNotAcquired: those two are said only when the store said so. An error
// that means that the store did not answer, or refuses everybody (down, no
// leader, no connection), wraps [ErrUnavailable]; a refusal of this caller
// (wrong password, missing right) does not. The core adds the mark to network
// errors by itself.
//
// # Other
//
// D15. Inspect returns the live queue in order. Held says that the ticket is
// granted; one whose turn has come, and which has not claimed it yet (D4), may be
// shown as waiting or as held. Remaining is the rest of a holder's lease, Since
// the time of its grant or, for a waiter, of queueing, as well as the store
// knows. A ticket whose lease is over is not shown.
//
// D16. All methods may be called from many goroutines at once. Every method
// returns within 50 ms after its ctx ends, whatever the store does. A method
// whose ctx ends while the store refuses connections says why it could not
// connect, beside the end of the ctx.
//
// D17. Close stops the driver's goroutines, ends waiting Acquires with
// [ErrClosed], and closes what the driver opened itself, never a
// client that the user gave it. The core has released what was held. Close
// returns within 150 ms though the store does not answer: what it asks for then,
// such as the end of an empty session, gets 100 ms. A second Close returns nil. A
// driver serves one core: a second locker.New on it is an error of the program.
//
// D18. When every ticket is gone the store holds nothing that grows with the
// number of names that were used. What expired tickets leave is removed within
// Bounds.Crash and a minute, though nobody uses their names again, as long as
// some process has a driver open that was used: by the store, or by a background
// task of the drivers.
//
// D19. Errors are the store's own, wrapped at most to keep errors.Is working:
// the core adds store, verb and name. No error holds a password.
//
// D20. A ticket with Request.MinHold is not removed by Close, by the end of
// the process, or by the end of a session that Close could end, before
// MinHold after its grant; the core asks for a TTL of at least MinHold and
// does not release the ticket earlier. It is gone at most Bounds.Crash after
// its lease. A driver that cannot keep that answers ErrUnsupported before it
// queues the ticket.
package driver

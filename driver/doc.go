// Package driver is the driver interface: what the portable core of locker asks
// of a store. Programs that take locks need package locker, and nothing of this one.
// To write a driver, read docs/writing-a-driver.md of this module next, and
// docs/engines.md, which builds one step by step.
//
// Every store is used in the same way. Each lock name has a queue. Whoever
// wants the lock takes a ticket, to which the store gives a number that only
// grows, and the ticket is granted by the rule of [Grantable]. A driver maps
// that onto its store and holds no policy: options, re-entry, the renewal
// schedule, validity, the removal of tickets that are no longer wanted, and
// the text of errors belong to the core.
//
// The numbered sentences below are the specification. The conformance suite
// tests them and cites them by number. Drivers that pass are interchangeable.
//
// # Tickets
//
// D1. A ticket is identified by its name and its ID. The core makes the ID. It
// is never used for another ticket, and has at most 64 bytes of [0-9a-z-]. So a
// request may be repeated: an Acquire whose ticket is already queued answers for
// that ticket and does not queue a second one.
//
// D2. Two different names are two different locks, and no name refers to the
// inside of another name's queue. A name is any valid UTF-8 of 1 to 512 bytes;
// the core has checked it. Case, trailing blanks, slashes, braces and NUL are
// significant.
//
// D3. The store numbers the tickets. The numbers of one name strictly grow over
// all tickets that were ever granted, also after the queue was empty, the server
// was restarted, or idle keys were removed. The number orders the queue and is
// the fencing token.
//
// # Grants
//
// D4. A ticket is granted exactly when [Grantable] says so of the live queue.
// The decision is made by the store, or by a client on a view of the queue that
// the store has ordered. It never depends on the wall clock of a client, and never
// compares the clocks of two machines. A waiter may claim its own grant once it is
// grantable, within the time of D13.
//
// D5. Grants follow the queue. No request overtakes a live ticket that blocks
// it, whether it waits (Request.Wait) or not.
//
// D6. With Request.Wait false, Acquire never waits for a grant: it returns a
// grant or [ErrNotAcquired]. While a live ticket blocks it, such a request is
// never queued, not even for a moment. Nobody else is refused or made to wait
// because of it, and a process that dies in the middle of it leaves nothing.
//
// D7. With Request.Wait true, Acquire returns when the ticket is granted or ctx
// ends. It calls Request.Joined once, as soon as the store has said that the
// ticket is queued and not granted. The core runs the observers of the program
// inside Joined, so it may take long, and it may call the driver: Acquire holds
// no lock meanwhile that another method needs, and keeps the ticket alive (D8).
// Before Joined, a store that cannot be reached is an error. After Joined,
// Acquire waits until the store is back or ctx ends. The error at the end of ctx
// wraps context.Cause(ctx). If Bounds.Silence is not 0, Acquire adds the last error
// of the server of this name, unless that has answered since. Otherwise the core finds
// out itself whether the store answers meanwhile: while tickets of a Client wait, it
// inspects one name, which nobody uses, once a second. Where each server of the store has
// some of the names, that would say nothing about the others.
//
// D8. A waiting ticket lives only while its process shows that it lives, from
// the moment when it is queued. When the process dies, all its waiting tickets
// leave the queue together, within Bounds.Liveness of their TTL, however many
// there are. A waiter whose ticket has left the queue (after an outage longer
// than that) gets [ErrLost] or, if an earlier request may still put the ticket back,
// [ErrUnavailable]. The core then queues again.
//
// D9. Any error of Acquire may leave a ticket, except ErrNotAcquired, ErrLost
// (D8) and an error marked by [NoTicket]. The core then calls Release with the ID until the
// ticket is gone. A driver need not clean up itself.
//
// # Leases
//
// D10. A granted ticket is held under a lease of Request.TTL on the store's
// clock: the clock of the server or, for an embedded store that the processes
// of one machine share, the clock of that machine. For a store that keeps no time
// and has no sessions, other processes measure the lease: it is over when one of
// them, or several in turn, have seen no sign of life of the holder for longer than
// TTL, by the monotonic clock of one or by the clock of one server, and with a margin
// for its rate. The lease ends by itself. It
// does not end before TTL has passed since the store granted it (unless Grant.TTL
// or Bounds.MaxTTL says less). The queue moves on within Bounds.Crash after the
// last renewal at the latest, and needs no request of the holder for that. That
// holds for processes that come and go too, none of which lives for as long: one of
// them is granted within Bounds.Crash and the time from one to the next. A
// store that cannot give so short a lease, or that knows only sessions, may keep
// the ticket longer while the process lives: the core calls Release when the
// lease is over.
//
// D11. Grant.Asked is a reading of the monotonic clock, taken before the
// request that started the present lease was sent. A waiter learns of its
// grant later than the store made it. The driver ensures that the lease runs
// for at least its TTL from Asked, either with a request of its own or by
// counting from a request that the store had executed before the grant. If the
// store grants a shorter provisional lease first, Grant.Claim says so, and the
// core renews in time. An Acquire that is repeated for a ticket that is held
// begins the lease anew, or counts from the request that began it.
//
// D12. Renew makes the lease end no earlier than ttl after the store executes
// the request or, if Grant.TTL or Bounds.MaxTTL is less, that long after it. It
// never shortens a lease: a renewal that arrives late, after one for longer,
// changes nothing. If the ticket is not there, is not held, or its lease is
// over, Renew returns ErrLost and changes nothing. A lease that has
// ended is never revived, whether or not another ticket was granted since.
//
// D13. Release removes the ticket, held or waiting, and the next waiter is
// granted: if the store and the waiter's process are idle, the waiter's Acquire
// returns within 100 ms after Release has returned. If the ticket is not there,
// Release returns ErrLost and changes no other ticket. If the store's client may
// have sent the request twice, and the first may have removed the ticket,
// Release returns nil. The core may call Release for the same ticket more than
// once: while an earlier Release or Acquire of the ticket is still unanswered,
// and long afterwards. It repeats the call until it has an answer. The ticket
// must not outlive that answer, whatever else shares its session.
//
// D14. A request that was not answered is an error, and never ErrLost or
// ErrNotAcquired: those are returned only when the store said so. An error
// that means that the store did not answer, or refuses everybody (down, no
// leader, no connection), wraps [ErrUnavailable]. A refusal of this caller
// (wrong password, missing right) does not. The core marks network errors by
// itself.
//
// # Other
//
// D15. Inspect returns the live queue in order. Held means that the ticket is
// granted. A ticket that is grantable and not yet claimed (D4) may be shown as
// waiting or as held. Remaining is what is left of a holder's lease. Since is
// the time of the grant or, for a waiter, of queueing, as exactly as the store
// knows it: where a grant writes nothing, that of queueing. A ticket whose lease is over is
// not shown. Every answer is the store's: it is never taken from a cache of the driver. So a
// driver that hands a lock over within its process before the store has the release shows the
// ticket before as the holder until then.
//
// D16. All methods may be called from many goroutines at once. Every method
// returns within 50 ms after its ctx ends, whatever the store does. A method
// whose ctx ends while the store refuses connections returns the reason why it
// could not connect, joined with the end of the ctx. When the store is back
// after an outage, the driver works again without being reopened.
//
// D17. Close stops the driver's goroutines, ends waiting Acquires with
// [ErrClosed], and closes what the driver has opened itself, never a client
// that the user passed in. The core has released what was held. Close returns
// within 150 ms even if the store does not answer: requests that it sends, such
// as one that ends an empty session, get 100 ms. A second Close returns nil. A
// driver serves one Client: to pass it to a second locker.New is an error of the
// program, which the driver need not detect.
//
// D18. When every ticket is gone, the store holds nothing that grows with the
// number of names that were used. What expired tickets leave is removed within
// Bounds.Crash and a minute, even if nobody uses their names again, as long as
// some process has a driver open that was used. The store does it, or a
// background task of the drivers.
//
// D19. Errors are the store's own, wrapped at most so that errors.Is keeps
// working. The core adds the store, the verb and the name. No error contains a
// password.
//
// D20. A ticket with Request.MinHold is not removed by Close, by the end of
// the process, or by the end of a session that Close could end, before MinHold
// has passed since its grant. The core asks for a TTL of at least MinHold, and
// releases the ticket earlier only if its caller did not get the lock. The
// ticket is gone at most Bounds.Crash after its lease. A driver that cannot keep
// this returns ErrUnsupported before it queues the ticket.
package driver

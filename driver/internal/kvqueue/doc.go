// Package kvqueue is the queue engine of stores that keep entries ordered by
// creation, which end with a session: etcd and Consul. A driver on such a store is an
// [Engine], which has all the bookkeeping, over a [Store], which is a handful of
// requests. Only the engine has state about tickets; only the store knows
// keys and wire formats.
//
// # The idea
//
// Each lock name has a queue of entries in the store, and an entry's number comes
// from the store's order of writes. A client evaluates the queue by
// [driver.Grantable] on what it has read of it, its view, which may be old. That is
// sound because of one invariant:
//
//	What is ahead of a ticket only ever goes away.
//
// A new entry gets a larger number than all before it, an entry never changes its
// number, and an entry that has gone never comes back. So once a view is complete up
// to the ticket's own number, it shows all that is ahead of it, and perhaps some
// entries that have gone meanwhile. A view that is behind delays a grant; it never
// makes a false one. It follows too that an entry that an answer shows, and that
// the view lacks though it is complete up to that number, has gone: answers may be
// merged in whatever order they arrive.
//
// And an exclusive ticket is granted when nothing is ahead of it, and nothing ever
// will be. So if the entry that blocks a ticket, the last one ahead of it in its view,
// has gone and was that of an exclusive holder (Ticket.Held), then nothing is left
// ahead: Gone.All hands the lock over, without another reading of the queue. What
// that would have shown besides, that the waiter's own entry is still there, the store
// has to know then: an entry may be removed by hand at any time.
//
// # A ticket
//
//	          put answered, blocked         all ahead gone
//	putting ──────────────────────► waiting ──────────────► held
//	  │ │ │                            │                     │
//	  │ │ └─ put answered, granted ────┼───────────────────► │
//	  │ │                              │   Release           │
//	  │ └─ put not answered ─► orphan  └───► leaving ◄───────┘
//	  │                          │               │
//	  └─ put refused             └─ Withdraw     └─ Delete answered
//	       │                          │               │
//	       └────────────────────────► gone ◄──────────┘
//
// From every state a ticket is gone when the store says that its entry or its
// session is. A waiter then gets ErrLost, a holder is told (NotifyLoss).
//
// An orphan is a ticket whose put was not answered: the entry may be there, may yet
// come, or never. The core releases it (D9), which withdraws it: the store removes the
// entry, and leaves a tombstone that keeps a late put from being done. Tombstones end
// with the session, which takes no more tickets from then on and is ended with its
// last one. A deletion that was not answered leaves the ticket leaving; the core asks
// for it again.
//
// # Sessions
//
// Tickets whose leases have the same class, which is mostly one for each TTL in use,
// share a session. Whoever acquires keeps it alive if that was not done for a sixth of
// its TTL, so a lease counts from less than that before the request. A background task
// keeps the sessions of waiting tickets alive, every third of the TTL; the core renews
// those of held ones. A lease that nobody renews, and one with a minimum hold,
// starts with a keep-alive of its own. A session without tickets is ended after ten
// seconds.
//
// # A queue with waiters
//
// One goroutine for each name in which a ticket of this driver waits. It knows what
// blocks the first of these tickets, has the store watch for the end of that, and
// reads the queue when it has to. The tickets behind the first wait for nothing but
// their turn, so their number costs nothing. What a release or a grant within this
// process changes is applied to the view at once. The view stays for two
// seconds after the last waiter has left, since who has waited for a name is likely to
// wait for it again.
package kvqueue

// Package kvqueue is the queue engine of stores whose entries are ordered by
// creation and end with a session: etcd and Consul. A driver of such a store is an
// [Engine], which has all the bookkeeping, over a [Store], which is a handful of
// requests. Only the engine has state about tickets; only the store knows
// keys and wire formats.
//
// To change how tickets are granted, read "The idea" and "A ticket" below, then view.go (what is
// known), watcher.go from handle on (who is granted when something has gone), and Put and Look
// in store.go of the driver (who is granted at once). Three things hold the rest up: the store's
// order of what it answers (view.merge), that a waiter is granted only after its own entry was
// seen behind what has gone (handOver), and the form of keys and values (wire.go of the driver:
// another form needs another version of the protocol). Then run the tests of this package, and
// the simulation: go test ./internal/sim -run Seeds -args -world etcd,consul -for 60s.
//
// # The idea
//
// Each lock name has a queue of entries in the store, and an entry's number comes
// from the store's order of writes. A client applies [driver.Grantable] to its view:
// what it has read of the queue, which may be old. That is sound because of one
// invariant:
//
//	Entries ahead of a ticket can only go away.
//
// A new entry gets a larger number than all before it, an entry never changes its
// number, and an entry that has gone never comes back. So once a view is complete up
// to the ticket's own number, it shows all entries ahead of the ticket, and perhaps
// some that have gone meanwhile. An old view delays a grant; it never makes a false
// one. Of two answers the one that is complete up to the larger number is newer, in
// whatever order they arrive. If it shows an entry that the view lacks, and the view is
// complete up to that entry's number, then the entry has gone.
//
// A ticket's own entry goes only if somebody removes it (Break, or by hand), and then the
// ticket must not be granted on an old view. So the queue is read when the one entry that
// was watched has gone; a watch of a whole queue shows the end of both, in order. When this
// driver releases the only ticket ahead, the answer shows whether the entry of the next one is
// there (Store.Delete). And an entry is never taken for a new ticket's: a put creates its
// entry, or fails (ErrOccupied).
//
// # A ticket
//
//	          put answered, blocked         blockers gone
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
// session is gone. A waiter then gets ErrLost, a holder is notified (NotifyLoss).
//
// An orphan is a ticket whose put was not answered: the entry may be there, may still
// be created, or never. The core releases the ticket (D9), and the engine withdraws it:
// the store removes the entry, and leaves a tombstone that keeps a late put from being
// done. The session of an orphan takes no more tickets, and is ended with its last one;
// its tombstones end with it. A deletion that was not answered leaves the ticket in the
// state leaving; the core asks for the deletion again.
//
// # Sessions
//
// Tickets whose leases have the same class share a session. There is about one class for
// each TTL in use. A ticket stays on its session: [driver.Grant] says how long that is, and the
// core renews a lease that is extended beyond it. Only Shorten, the last request for a ticket
// with a minimum hold, moves one to a shorter session. Acquire keeps the session alive if no keep-alive was sent for a sixth
// of its TTL, so the lease of a free lock counts from less than that before the request.
// A background task keeps the sessions of tickets alive for which a call of Acquire is under way,
// every third of the TTL; the core renews the sessions of held ones. A lease that nobody renews, and one with a
// minimum hold, starts with a keep-alive of its own. A session without tickets is ended
// after ten seconds. One that was not kept alive for its TTL takes no more tickets: the store may be about to end it.
//
// The lease of a grant counts from a request that the store has executed:
//
//	keep-alive sent   put or grant     the lease is over    the session ends
//	      │────────────────┼───────────────────┼───────────────────┼──►
//	      │◄─ a sixth of the TTL at most, or a third after a wait
//	      │◄────────── TTL of the session: its class ─────────────►│
//	               │◄── TTL of the lease ─────►│
//	               Grant.Asked: the middle of what the session has to spare
//
// # Losses
//
// A ticket may go without its driver, if its session ends or somebody breaks it. Each
// session that has a ticket when it is 200 ms old, or some time later, is watched for that
// (Store.Losses), by a key that ends with the session, and that is changed by who breaks a
// ticket of it. All that the watch reports is that something may be lost: the engine asks which tickets are
// missing, and has the queues of these read; it asks until the store answers. A ticket that
// was not seen since the report, because its put was under way, is looked for before its
// grant. The tickets of a session that is
// over are lost together.
//
// No watch reports an entry that is removed by hand: a renewal finds out, or the next
// reading of the queue. While its session is watched, a renewal looks for a part of very
// many tickets, those that were not seen for the longest, and the next ones look for the
// others (Options.LookFor).
//
// # A queue with waiters
//
// For each name in which a ticket of this driver waits, one goroutine finds what blocks
// the first of these tickets, has the store watch for the end of that, and reads the
// queue when it must. The tickets behind the first need no requests, so their number
// costs nothing. Releases and grants within this process are applied to the view at
// once. The view stays for two seconds after the last waiter has left, since a process
// that has waited for a name is likely to wait for it again.
//
// # Why ZooKeeper does not use it
//
// ZooKeeper keeps its entries in this order, too. But it gives a client one session,
// which the client library keeps alive by itself, so there are no sessions to share, keep
// alive or end, which is a third of this package. And its watches fire once, so it costs
// least if each waiter sets one watch, on the one entry that it waits for, where this
// package watches a queue for all waiters of a process. ZooKeeper's driver was moved
// here and measured: a contended lock had 0.79 to 1.02 of its grants a second, the
// client's CPU rose by 10 to 23 %, a held lock took 1,537 bytes instead of 1,111, and a
// release to a semaphore with a hundred waiters took 5.1 requests instead of 3. The
// engine needed fourteen fields, options and functions that no other store uses. So package
// zookeeper has machinery of its own.
package kvqueue

// Package sqlqueue is the queue engine of the drivers that keep their queues in tables of a database. Such a driver is
// an [Engine] over a [Store]: the engine has everything that takes time or goes wrong (waiting, heartbeats, grants that
// were missed, requests that were not answered, sweeps), and the store has a dozen requests, each of which is one
// transaction of the database. Read driver/sqlite next, and "Files" below before a change. Programs of several versions
// share the tables: a schema with another text is another version.
//
// # The idea
//
// A queue is the rows of one name, in the order of their tokens. Whoever changes a queue grants what has become
// grantable, in the same transaction: the process that releases a lock makes the next ticket a holder. So nobody has to
// claim a grant, and a release costs the same however many wait.
//
//	           granted                               Renew
//	Take ───────────────► held ◄──────────────────────────────── held, provisional
//	 │                                                                 ▲
//	 └─ queued ─► waiting ── Remove, Break, Advance or Take of others ─┘
//
// A ticket that waited is granted under a provisional lease, which ends when the life of its process ends, if that is
// sooner than its TTL. So a process that has died does not block the queue for a TTL, although it was granted the lock.
// The next renewal makes the lease a whole one. Most locks are released before that, and need no request for it.
//
// # Liveness
//
// A process that waits has one row in the database, however many of its tickets wait, and renews it every quarter of the
// liveness interval. The ID of the row is a random number (its high bits are the driver's, the low ones count): it changes
// when the row has expired or was removed, and an expired row is never renewed. So a ticket whose process has missed its
// heartbeats stays lost, although the process lives. Each heartbeat has a number, and the grant of a ticket contains the
// number of the last one before it: the waiter knows when it sent that, and from when its lease counts (D11). No clocks
// are compared.
//
// # How a process learns of its grants
//
//   - In the answer to a request of its own: all answers contain the grants to tickets of the process that asked.
//   - By a notice of the process that granted (LISTEN, a pipe, a connection that sleeps), if the store is a [Notifier].
//   - By asking for its own ([Store].Mine). It does so when notices may have been missed and with each heartbeat, and, as
//     long as no notices arrive, every 2 to 250 ms.
//
// A ticket of the process that it neither waits for nor holds, since the answer to its request was lost or its caller has
// left, is the core's to release.
//
// What expires notifies nobody. So a process that waits asks when the head of each of its queues may expire
// ([Store].Due), and asks again then; if something has expired, it lets the queue move on ([Store].Advance). The process
// of the first waiter asks first, and all others a little later.
//
// # Requests that were not answered
//
// A request whose answer was lost is sent again where that is harmless. Taking a ticket is: its ID is unique, so the
// second request finds what the first has queued. But the first may still be on its way, in the network or waiting for a
// lock of the database, and take the ticket after it was released. So each request for a ticket contains the time, on the
// database's clock, after which it takes none: two seconds after it was sent. Until that has passed, Release removes the
// ticket and says that the store is not available (D13): the core keeps the ticket in its books, and asks again. The
// database's clock is estimated by the answer to an earlier request. If it was set since, the request is refused, the
// answer contains the time, and it is sent again. A store that executes the requests of a process in order
// needs none of this: it answers whatever the time is.
//
// A wait that has lost its ticket says so only if no earlier request for it can have taken it anew since it was seen last.
//
// Several calls may ask for one ticket. The answer to one of them says nothing about the others, so all of this is by the
// ticket's ID, until a release was answered. Notices of a ticket that was asked for before may be about an earlier one with its
// ID: they are not believed, but all tickets of the process are read. So they are when a ticket that waits is heard to be lost.
//
// # What is left behind
//
// Whoever uses a queue removes the expired tickets in its way. The others are removed by a sweep of all queues, which one
// process at a time does every 45 s.
//
// # Files
//
// store.go: what a dialect implements. engine.go: the parts together. acquire.go, lease.go: the methods of
// driver.Driver. book.go: the tickets that this process waits for and holds. process.go: its row. attend.go: the
// background task of a process that waits. listen.go, notice.go: notices. sweep.go: sweeps. retry.go: errors, requests
// that are sent again. schema.go: tables that are missing or of another version, and the hash that identifies one. pool.go:
// the connections beside an exhausted pool. sqlqueue.go: bounds of times.
package sqlqueue

// Package casqueue is the queue engine for stores that can do one thing: replace a small document if it is still the
// one that was read. A driver of such a store is an [Engine] over a [Store], which has three requests. Read
// docs/engines.md next, which builds one. Programs of several versions share the documents: what they contain
// (document.go) changes only with their format.
//
// # The idea
//
// The whole queue of a name is one document. To change it, a process reads it and writes it back on condition that
// nobody has changed it meanwhile. Otherwise it tries again, with what the answer says of the document if it does
// ([Changed]), and after a random pause if it fails repeatedly. The grant rule is that of package driver,
// applied to the document: a ticket is granted when the tickets ahead of it allow that, and no write is needed for it.
// Tickets ahead of a ticket can only go away, so an old reading delays a grant, and never makes a false one. One goroutine
// makes all changes of a process to one document, and writes them together. A release, a lease and the removal of expired
// tickets end its pause, because others wait for them.
//
// # Liveness
//
// The clocks of two machines are never compared. A process shows that it lives by changing a document of its own, its
// heartbeat, however many tickets it has: four times in the life of a waiter while it waits, and with each round of
// renewals. Another process concludes that a ticket has expired when it has observed the ticket for longer than its
// life, by its own monotonic clock, and has seen neither the ticket's record nor the heartbeat change. It then removes
// the ticket from the document, if the document is still the one that it has read. The life of a held ticket is its
// TTL; that of a waiter is 4 s, or its TTL if that is less. A process that reads a queue in order to change it observes
// too. Kubernetes' leader election and the DynamoDB lock client conclude in the same way.
//
// Processes may live for less than a ticket. So what one of them observes helps the next, if the store has a clock that
// all can read ([Clock]). A process that is refused, ends its wait without a grant, or waits for a ticket that is silent,
// writes into the ticket's record which heartbeat it has seen, and since when by the store's clock. The next one reads
// the clock, and then the heartbeat. If neither the record nor the heartbeat has changed, it takes over the time that has
// passed, as if it had observed the ticket itself; all the rest is as before. Two readings of that one clock are
// compared, and never the clocks of two machines: each observation names its clock, and that of another server is another
// one. The time that has passed is never overestimated: the clock is read after what an observation begins with, and
// before what confirms it, and a clock that shows whole seconds is taken for as late as it can be in the first reading,
// and as early in the second. An observation ends with the ticket, and with the next sign of life. Who writes one also
// writes the heartbeats of the holders and of the next waiter again as they are, so that the store keeps them for two
// minutes longer than those tickets live, but no longer than the queue: a process that finds none cannot know whether
// there have been others since. All visitors together write the queue about once for each sign of life that they see, and
// besides it one heartbeat for each holder and one for the next waiter. A visitor sends two requests more than the one
// that was refused, and those writes. Without such a clock a ticket is removed only when one process has observed it for
// its whole life.
//
// A process that is closed within a minimum hold knows that no sign of life will follow. It writes into the record how
// long the ticket still lives, and that it was there at that time ([Engine.Shorten]). So the next process removes it at
// once if that has passed. The first lease of a ticket with a minimum hold is observed by its own process in the same
// way, for jobs that die.
//
// All tickets of a document have expired if the store has forgotten the document, or says that it need not keep it any
// longer ([Document].Expired). A store that loses its last changes may bring back a ticket that was released. Its own
// process ignores its heartbeats for such a ticket, and removes it when it waits or tries. Other processes take it for
// alive while that process lives.
//
// A process that waits observes the holders and, ahead of each of its tickets, the nearest 8 waiters that are not
// silent. So a queue of n processes costs some 9 n readings a second, and not n². Waiters further ahead are observed by
// those behind them. If 8 waiters are silent, those that should observe the rest may have died too; then the process
// observes all. So all expired waiters leave the queue together, however many there are, some 6 s after their
// processes died; or 8 s, if 8 or more of them were next to each other.
//
// A holder counts on less than that. Its lease ends one life after it sent its last sign of life, and only signs count
// that were answered before the life of the previous one was over (ticket.alive). All other processes wait for the
// life, 5 % and 100 ms from when they saw that sign, which was later. A heartbeat that was answered too late does not
// count, because another process may have read the previous one and be about to remove the ticket. A lease that
// heartbeats do not renew, or whose length changes, is begun anew in the document itself. So is one that is renewed while
// another change of it, which may be one of its length, is on its way or has failed, or after the machine was suspended
// for longer than its life.
//
// # A grant
//
//	           placed, blocked             grantable, alive a moment ago
//	Acquire ───────────────────► waiting ─────────────────────────────────────► held, provisional
//	   │                            │ no heartbeat lately, or a fixed lease        │ Renew
//	   │                            └──────────► claiming ──────────────┐          │
//	   │ placed, granted                         (its lease is written) ▼          ▼
//	   └──────────────────────────────────────────────────────────────► held, with its lease
//
// A waiter learns of its grant by reading. Its lease is provisional, as long as the life of a waiter, until the core
// renews it and the lease is written. Most locks are released before that: they need no write between queueing and
// release.
//
// # Notification
//
// A process that waits has one poller, however many of its tickets wait. If it waits in one queue only when a ticket is queued, and that is small, it
// reads the queue itself for as long as the ticket waits, and the record of the ticket says so. All others are notified: each process has a document for
// notifications, and who changes a queue writes to those of the processes whose tickets do not wait any more, since they
// have been granted, or removed. If a queue is not small any more, the next change says in all records that their processes
// are notified, for as long as they wait.
//
// The poller reads the one or the other every 90 ms. While one of its tickets is the next, it does so more often, at first
// every 0.25 ms, and every 50 ms in the end. It rests twice as long as a reading takes, so that waiters do not overload a slow
// store. A process further behind reads the queue also when two thirds of the time have passed until its ticket becomes the
// next, as it estimates. A queue says how long its tickets are held: each release adds that to a moving average, in which one
// long hold hardly counts. A hand-off takes some readings more. An estimate from what a process sees of the queue would not
// do: a process that reads too late makes the queue slower, and would take that for its rate.
//
// A store that reports changes ([Watcher]) needs no poller: each report of a notification makes the process read its queues. A
// notification that is lost, or that nobody sends, since the change was not answered, delays a grant by a second at most,
// because the process reads its queues that often to find expired tickets.
//
// # Unknown outcomes
//
// After a write without an answer, the engine writes again for the same version, or reads. If the first write was
// done, the second one fails, and the reading that follows finds the ticket's ID. If it was not done, the store may
// still do it as long as the document does not change. So the next change of the document is written even if it changes
// nothing, and a release is answered only after that.
//
// When the store has forgotten the document, no version is left for such a late write, unless it is the write that
// creates the document. That one would bring back a ticket that was released long ago, and the heartbeats of its
// process would keep it alive. If a store may be so late (LatePuts), the engine creates a document without tickets
// first, and then changes it.
//
// # Tokens
//
// A ticket's number comes from the counter of its queue, which begins with the wall clock in microseconds and is never
// more than two seconds behind it. So numbers grow as long as the document lasts. After the store has lost or forgotten
// it, they grow if the process that makes the next document has seen the last number, or if its clock is behind the
// clock that made the last number by no more than the time between the two. A document without tickets is kept for
// 30 s, for its counter; so clocks may differ by 30 s in ordinary use. If the store loses only the last changes of a
// document, numbers grow if it comes back at least two seconds later, plus the difference of the clocks.
package casqueue

// Package casqueue is the queue engine of stores that can do one thing: replace a small document if it still is
// the one that was read. A driver on such a store is an Engine over a [Store], which has three requests.
//
// # The idea
//
// The whole queue of a name is one document. Whoever changes it reads it, changes it, and writes it back on
// condition that nobody was faster; else it begins again, after a random pause. The grant rule is that of package
// driver, applied to the document: a ticket is granted when the tickets before it allow that, and nothing need be
// written for it. What is before a ticket only ever goes away, so an old reading delays a grant, and never makes a
// false one. The changes of one process to one document are made by one goroutine, together; a release, a lease, and the
// removal of the dead end its pause, because others wait for them.
//
// # Liveness
//
// No clocks of two machines are compared. A process shows that it lives by changing a document of its own, its
// heartbeat, however many tickets it has: four times in the life of a waiter while it waits, and with each round of
// renewals. A ticket is dead to a process which has looked for longer than the ticket lives, by its own monotonic
// clock, and has seen neither the ticket's record nor the heartbeat change in that time. Then it removes the ticket
// from the document, if the document still is what it has read. A ticket that is held lives for its TTL, and one that
// waits for 4 s or its TTL, if that is less. Who has just begun to look has to look for that long, however long there
// was no sign of life before: only a ticket that somebody waits for all the time is removed within the stated bounds.
// Whoever reads a queue to change it looks too, so a process that only tries finds out in the end. Kubernetes' leader
// election and the DynamoDB lock client conclude in the same way. All tickets are dead that are in a document which
// the store has forgotten, or says that it has still and need not ([Document].Expired). A ticket of a process that does
// not use it, since the store has lost that it was released, is dead to that process alone, which removes it when it
// waits or tries.
//
// A process that waits looks at the holders and, before each of its tickets, at the nearest 8 waiters that are not
// silent: a queue of n processes costs some 9 n readings a second, and not n². The waiters further ahead are looked
// at by those behind them. When 8 are silent, those that should look at others may be dead too: then it looks at all.
// So all that are dead leave the queue together, however many they are, some 6 s after their death; or 8 s, if 8 or
// more died of those next to each other.
//
// What a holder may count on ends earlier: a life after it sent the last sign of life, if that was answered
// within the life that the one before it had begun (ticket.alive). Everybody else waits for the life, 5 %, and
// 100 ms from when they have seen that sign, which was later. A heartbeat that was answered too late counts for
// nothing: somebody may have read the one before, and be about to remove the ticket. A lease that is not renewed by
// heartbeats, and one that changes its length, is begun anew in the document itself.
//
// # A grant
//
//	           placed, blocked             all ahead gone, alive a moment ago
//	Acquire ───────────────────► waiting ─────────────────────────────────────► held, provisional
//	   │                            │ no heartbeat lately, or a fixed lease        │ Renew
//	   │                            └──────────► claiming ──────────────┐          │
//	   │ placed, granted                         (its lease is written) ▼          ▼
//	   └──────────────────────────────────────────────────────────────► held, with its lease
//
// A waiter's grant is known by reading. Its lease is provisional, of a waiter's life, until the core renews it and
// the lease is written; most locks are released before that, and need no write between queueing and release.
//
// # Notification
//
// Each process has a document for notifications. Whoever changes a queue writes there, for the processes of the
// tickets that have become granted, or the next to be, or were removed. A process that waits has one poller, however
// many of its tickets wait: it reads that document every 100 ms, and more often while one of its tickets is the
// next, from every millisecond to every 50 ms the longer that takes. It reads the queue itself when half of the time
// has passed until a ticket should be the next, at the pace at which the queue has moved. It rests three times as
// long as a reading takes, so that waiters do not overload a slow store. A store that can tell of changes ([Watcher])
// needs no poller: the queue is read when it tells of one. A notification that is lost is made up for by the looks for
// the dead, every second at most.
//
// # Unknown outcomes
//
// A write that was not answered is followed by another for the same version, or by a reading. If it was done the other
// one fails, and a reading follows: the ticket's ID shows that it was done. If it was not it may yet be, on condition
// that the document has not changed; so the next change of the document is written even if it changes nothing. A
// release is answered only after that.
//
// A document that the store forgets leaves no version that such a request could wait for. Only one that creates it
// could be done then, and make a ticket that was released long ago and that the heartbeats of its process keep alive.
// If a store may be so late (LatePuts), a document is created without tickets first, and then changed.
//
// # Tokens
//
// A ticket's number comes from the counter of its queue, which begins with the wall clock in microseconds and is never
// more than two seconds behind it. A document without tickets is kept for 30 s, for its counter. So numbers grow as long
// as a document lasts; and after the store has lost or forgotten it, if the process that makes the next one has seen the
// last number, or the clock of its machine is not behind that of the one that made the last by more than the time between
// them: clocks may differ by 30 s in ordinary use. If the store loses the last changes of a document, numbers grow if it
// is back only two seconds later, besides what the clocks differ by.
package casqueue

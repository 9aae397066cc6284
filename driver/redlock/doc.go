// Package redlock keeps locks on a majority of independent Redis servers, with the algorithm
// that is published as Redlock ("Distributed Locks with Redis", redis.io). It adds a queue in
// order of arrival, shared locks and semaphores, and fencing tokens. Read package locker first,
// then "What it does not promise" below. Of the keys under the prefix, other programs may set
// those of exclusive holders, and no others.
//
//	redlock://[user:password@]host1,host2,host3[,…][/db]
//
// takes 3 to 64 servers that know nothing of each other, with one user, password and database
// number for all. A URL has the parameters prefix, key_form, dial_timeout, pool_size,
// password_file, tls, ca, cert, key, server_name and insecure_skip_verify of driver/redis,
// and timeout (see [WithNodeTimeout]) and drift (see [WithDrift]). Opening it reaches no
// node. An odd number is best: of four nodes only one may fail, as of three. Tested with
// Redis 7.0; the scripts use no command newer than 6.2.
//
// Each node has the key prefix:protocol:redlock, the version of the stored data. The first
// Acquire of a driver reads it, and writes it where there is none. Programs of two versions, or
// with two forms of keys, would not exclude each other: one that finds no majority with its own
// version is refused.
//
// # A grant
//
// A request goes to all nodes at once, and the first majority of answers decides it: no caller
// waits for a slow node while a majority is quick. The exclusive holder has on each node the
// plain key prefix:{name}, set as by SET NX PX, so that it and other Redlock clients (go-redsync
// is tested) exclude each other, if they use that key or [WithKeyForm] (key_form in the URL)
// names theirs. A hash there, such as a lock of Redisson, excludes this driver too, and Redisson
// gets an error where this driver holds. The lease counts from before the first request was
// sent, and nodes keep it for TTL + 1 % (the drift) + 2 ms, so that a holder has all of TTL. A
// grant without a majority is undone on all nodes, also on those that have not answered. A node
// runs the requests of a process in their order. If one may still be on its way over a broken
// connection, the node keeps a tombstone of its ticket for five seconds. A node that a release
// does not reach is asked again, a second after each failure, for a minute at least, and for as
// long as the lease may last there, but for no more than ten.
//
// A Break counts when a majority has run it within five seconds: the ticket is then removed from
// all nodes. Its process is notified by those nodes that had it, and asks the others. What only a few have run changes nothing.
//
// A renewal counts when a majority has it. If a node lacks a lease that a majority has (it was
// down, has lost its data, or did not get the request), the lease is set there again, for the rest of its time: with each
// renewal, and within two seconds after the node is back. A lease without a majority is lost,
// never repaired.
//
// # The queue
//
// Each node keeps a queue of its own for each name, sorted by numbers that the clients
// choose, so that all sort it alike. It is Lamport's bakery (CACM 17, 1974): a ticket's
// number is larger than that of any ticket which was queued when it came.
//
//   - A client guesses the number: the nodes' time in microseconds. A node takes a guess only
//     if it is larger than all numbers in its queue and than its fence, the largest number
//     that ever held there (kept per node for 1024 sets of names). Without contention this is
//     the only round.
//   - If a majority does not take it, their answers contain the largest numbers that they have,
//     and the client chooses a larger one than all. A node takes such a number out of order too,
//     unless it is at or below the fence, or another ticket has it.
//   - A ticket is queued when a majority has it. It may hold on a node when the grant rule
//     says so of that node's queue and the key is free. It is granted when it holds on a
//     majority; if it got fewer, it gives them back and waits on.
//   - A node notifies the process of a ticket when it may hold there (PUBLISH), and the
//     client proposes it again when a majority has notified.
//
// The states of a ticket in its client. The words beside the arrows are the answer of a majority
// of the nodes:
//
//	Acquire: propose(guess)      too small: propose(larger than all)
//	           │                    ┌───────┐
//	           └─────────────────►  ▼       │
//	  ┌───── queued ────────── PROPOSED ────┘
//	  │                          │  │  ▲
//	  ▼                          │  │  │
//	QUEUED ─── may hold: propose(its number)
//	  │                          │  │
//	  │           blocked: a try │  │ holds
//	  │                          │  ▼
//	  │                          │ HELD ◄─┐
//	  │ gone, cancelled          │  │ └───┘ renewed
//	  ▼                          ▼  ▼ released, lost
//	GONE: release, on each node until it answers or the lease is over
//
// The messages, each a script that a node runs as one step:
//
//	propose    id, number, mode → holds | queued | refused: number too small | blocked | known by another number | released
//	yield      id, attempt      → waits again, if it holds since that attempt or an earlier one
//	release    id               → gone; with a tombstone where an unanswered propose may still arrive
//	give back  id, attempt      → the same, unless it is there since a later attempt, which a tombstone does not stop either
//	renew      ids              → holds | does not, each
//	shorten    id               → holds, for a shorter time | does not
//	heartbeat  process, ids     → gone | waiting | holds | may hold, each; and when to poll again
//	notify     id               ← the node to the process: it may hold here; it was removed by Break; or: poll now
//
// A ticket that is queued, though it holds on a few nodes, yields there, so that the others
// move on. A node that was down when a ticket was queued, or has lost it, says so in answer
// to heartbeats, and gets it again: any majority can grant it. A node on which a larger number
// has held meanwhile does not take it: if its turn comes, and so many others are silent for three
// seconds that no majority can grant it, it is lost, and its process queues again.
//
// Why that is safe: two majorities share a node. Two exclusive holders would both have that
// node's key. A later ticket sees the number of an earlier one on the shared node. So its own
// number is larger, and the earlier ticket is ahead there; no node lets a ticket hold while
// another is ahead that blocks it. A node takes a number once, so two tickets do not have the
// same. A small number that arrives late is refused where a larger one has held, so tokens grow.
// For a limit the client counts the holders of all nodes together: of the nodes that answer, all
// but a minority know a ticket that is on a majority.
//
// Why it moves: all give way to the smallest number, which never gives way for good, so tickets
// that each got a few nodes settle at once. Only TryAcquire, which cannot wait, asks again after
// a random moment, five times at most, when several tries split the nodes. A try that a majority
// refuses may hold on the others until it has given them back. If its process dies in that
// moment, its key stays on these few nodes for the TTL, and delays nobody who has a majority of
// the others.
//
// # What it costs
//
// An uncontended acquire and its release are one request each to every node. A contended
// grant takes two, and a notification by each node. A waiting process sends each node one
// heartbeat a second for each name that it waits for.
//
// When a holder's process dies, the next is granted when the lease has ended on a majority of
// nodes: within TTL + 1 % + 0.3 s (a second at least). Waiters that have died leave within
// 3.3 s, all together. The shortest lease is 1 ms, though one that is not many times the
// round trip to a majority will be over when its grant arrives.
//
// # What it does not promise
//
// Redlock rests on time (Kleppmann, "How to do distributed locking", 2016):
//
//   - A node whose clock jumps ends leases early. If a majority does so at about the same time,
//     a lock is granted again while it is held. Slew clocks, do not step them. Only servers on
//     one clock were measured here.
//   - Nodes that lose data when they restart (no appendonly, or not appendfsync always) forget
//     leases. Each gets them again from their holders, within two seconds of being back. Until
//     then one node fewer has the lease. If it was on a bare majority, because all other nodes
//     are down or were lost too, it can be granted again in that time; its holder is notified at
//     once. Keep such a node down for as long as the longest TTL, or keep its data.
//   - A holder that is paused (garbage collection, a suspended machine) may go on for a
//     moment after its lease has ended: its context ends as soon as it runs again, not
//     before.
//
// The fencing token covers all three if the resource checks it: a later grant has a larger
// token. Tokens keep growing through the loss of data on every node, as long as a node that
// has lost some was down for longer than the clocks of the nodes and the clients differ, or than
// its own has gone back, and for longer than requests took to reach the nodes before: a node without a
// fence takes its clock for one, the first number of a client comes from the client's, and the next
// ones are ahead of the nodes' by as long as its requests have taken.
//
// Other Redlock clients have no queue: they try, and may win between a release and the grant
// of the next waiter. They have no fencing token: Inspect shows one that depends on the value of
// their key alone, with which Break removes them, and nobody who has come since. A key of another
// type, such as the hash of a lock of Redisson, counts as such a holder.
//
// The nodes have to be independent. Nodes of KeyDB with active-replica are refused, by Ping and by
// the first Acquire. See package driver/redis for other servers, and for a Dialer of your own. Hooks
// of the clients (AddHook) see no request of the driver.
// A majority has to accept SUBSCRIBE, else Ping and waits are refused: by its subscriptions a
// process also notices that a node has come back, and repairs its leases there.
//
// Close waits 100 ms for nodes that do not answer. What it could not release there ends with
// its lease.
//
// # Rights
//
// With access control lists the user needs, on every node, the keys ~prefix:*, the channels
// &prefix:* and the commands of [ACLCommands]. [Driver.Ping] runs them all but those for
// listing.
package redlock

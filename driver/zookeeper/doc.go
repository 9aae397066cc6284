// Package zookeeper keeps locks in Apache ZooKeeper. Read package locker first, then "What
// loses a lock" below. The nodes under the prefix are the driver's alone.
//
//	l, err := locker.Open(ctx, "zookeeper://zk1:2181,zk2:2181,zk3:2181/app")
//
//	d, err := zookeeper.New(conn, events) // from zk.Connect
//	l := locker.New(d)
//
// It is tested on ZooKeeper 3.8, alone and as an ensemble of three, and needs nothing
// that 3.4 does not have.
//
// # What the store holds
//
// A name in use is a node below the prefix, and its children are the queue: one
// ephemeral sequential node a ticket. The name's node is created with the first ticket
// and deleted with the last, in the same transactions, so that an empty queue is
// nothing. (It is no container node: the client cannot create one in a transaction, and
// older servers have none.) When sessions end, or somebody deletes tickets by hand, the nodes of
// their names are removed when the next ticket leaves the queue. If nobody uses the names again,
// a sweep removes them within a minute. One of all drivers on a prefix sweeps: with one read for the
// names, and one for each name in which it has no ticket itself. It removes only persistent
// nodes without children and without data. The prefix itself
// stays, and below it %protocol, which contains the version of the stored data: the first
// Acquire of a driver reads it, and writes it if there is none; a sweep writes it again, so
// that others know. Programs of two versions would not exclude each other: the second is
// refused, with an error that says what to do.
//
// The nodes are the driver's. Deleting a ticket's node by hand breaks the lock as
// Client.Break does, but writing into the node may grant a held lock to the next waiter. A
// node whose name has not the form of a ticket's is ignored; one that has it is a ticket,
// whatever its data.
//
// # What is guaranteed
//
// The fencing token is the czxid of the ticket's node: the number of the transaction
// that created it. So tokens grow over all names, restarts, elections, and the removal
// of idle names; they go back only when the ensemble's data do.
//
// The sequence number of the node orders the queue. If a queue was never empty until the
// server's counter of 31 bits has come to its end, the czxid orders it.
//
// A request that does not wait is queued by a transaction that fails if any ticket was
// queued or has left since the queue was read. So a refused request is never queued. A
// refusal, and what Inspect and List show, may be some seconds old if the server was the leader,
// is cut off from the others, and has not noticed.
//
// A waiter for a permit is woken by the waiter ahead, as soon as that one can be granted. If
// several permits are returned while the process of that one is stopped, the waiter is granted
// when its session has ended, at the latest.
//
// A ticket's ID is in the name of its node, so a ticket whose create was not answered is
// found again, when the create's connection has ended. After that it is not carried out any
// more, since a server closes the connection before when a session comes back on another,
// and the leader refuses what reaches it by the server before. A release waits until an Acquire
// of its ticket that is under way has ended or queued it, which sends no other create then. So no
// ticket is queued after its release was answered.
//
// # Sessions and leases
//
// All tickets of a driver live as long as the session of its connection, which the
// client keeps alive by itself. Its timeout is the session parameter of the URL, or the
// one given to zk.Connect, within the limits of the server (2 to 20 ticks unless they
// are set otherwise).
//
// A lease is shorter than the session: by a third, and by half a tick of the server. It
// counts from a request that a majority has confirmed. A read or a sync does not count,
// since a server that is cut off from the others answers those for a while. The
// difference covers what the leader, which ends sessions, may not know of a client that
// dies, or is cut off, together with its server: the client sends a heartbeat every
// third of its session, and followers report heartbeats twice a tick. Clients do not
// learn the tick. It is assumed to be 2 s, ZooKeeper's default, or a fifth of the session
// if that is more, and never more than half of the session, the least that a server
// grants unless its minSessionTimeout is set. So:
//
//	session   lease    without a server for
//	    4 s   1.67 s    1.1 s
//	   10 s   5.67 s    3.7 s (the default)
//	   20 s   11.3 s    7.4 s
//	   30 s     17 s   11.1 s
//
// Choose the session by the last column, two thirds of the lease less the core's safety
// margin: how long an election, or the move to another server, may take before locks are
// lost. Consider also how long the locks of a crashed holder stay (below).
//
// If a TTL is shorter than the table's lease, the core ends it. If it is longer, the core
// renews it at the table's lease; a fixed or an extended one, until its end.
//
// A minimum hold (WithMinHold) may be as long as a lease of the table, which
// Driver.Bounds states as MaxTTL; a longer one is ErrUnsupported, before it is queued. A
// driver that is closed within a minimum hold drops its connection without ending the
// session, as the end of its process does: the ticket stays until the session times out,
// and so do all others that were not released. On a user's connection every minimum hold
// is ErrUnsupported, since only the user ends its session.
//
// Any TTL from a millisecond may be asked for. When a process dies, its locks pass on,
// and its waiters leave their queues, when the session ends: after its timeout and up to
// one and a half ticks more. [Driver.Bounds] states one and three quarters of the session
// and a second, since a tick may be half a session.
//
// # What the lease rests on
//
// The next holder is granted when this one's lease is over, and not before, as long as
// the above is true. It may be granted earlier, and only the fencing token keeps the two
// apart, when a client and its server die or are cut off together within a lease of a
// grant or renewal, and besides
//
//   - the tick is longer than assumed: minSessionTimeout was set to less than two
//     ticks, or the tick to more than 2 s and a fifth of the session;
//   - or the server is an observer that follows a follower (observerMasterPort): it
//     reports heartbeats half a tick later than others;
//   - or the client had sent no ping in the third of a session before that grant or
//     renewal, although it kept its connection: its process, or the network to its
//     server, had been stopped and had just come back. Or the leader had.
//
// # What loses a lock
//
//   - The end of the session: the process was dead, paused or cut off for longer than
//     its timeout. The holder is notified as soon as a server says so, and by the
//     core's clock before that.
//   - A shorter session: it comes back on a server whose maxSessionTimeout is lower, and keeps
//     less than the lease on which the holder counts. The holder is notified then. (If it keeps the
//     lease, the lock stays, and Extend beyond what it keeps is ErrUnsupported.) If the answer
//     of that server is lost, and no other server answers either, two may hold until the old lease
//     is over: give all servers the same maxSessionTimeout.
//   - The end of the connection: zk.Conn.Close on the user's.
//   - Client.Break, or the deletion of the node. The holder is notified at once when the
//     lock has been held for a tenth of a second: "the ticket was removed from the
//     queue".
//   - No server for longer than the table says. An election that is shorter loses
//     nothing: the new leader gives every session its full timeout again. While there
//     is no leader nothing is granted.
//   - A server that hangs, or does not know yet that it is cut off from the others, if
//     there is no other server, or the connection is the user's: the client notices
//     after two thirds of the session, when the lease is over. Otherwise a driver opened
//     by URL leaves that server as soon as a renewal is not answered in time.
//
// # Outages
//
// While there is no session nothing is sent, nor left with the client to be sent later,
// so a failed acquisition usually leaves nothing to remove. A driver opened by URL
// says why no server gives it a session (connection refused, an unknown host, no
// answer). The client does not return that, so on a user's connection only its state is
// known.
//
// Servers that have lost their data, or a part of it, refuse every client that has seen more than they
// have, for as long as its process runs: requests fail with ErrUnavailable. Start the programs again. Tokens
// begin anew then, too.
//
// The client sets its watches again on each new connection and may miss an event
// meanwhile. (What it does then may be reported by a race detector, too: it reads a
// number without a lock, go-zookeeper/zk#35.) So a waiter reads its queue again on each
// new connection. In case the connection's events are not received, it also checks after
// 5 s, 10 s and so on up to five minutes, usually with one read of one node.
//
// The timeout that the server has granted is read from a field that
// github.com/go-zookeeper/zk does not export. A version without it is refused.
//
// # Numbers
//
// Acquire and release are one request each, token included: transactions. A contended
// grant takes five in all (create, list, two watches, release), however many wait. The
// hand-off itself takes only the release; a semaphore's takes a few more. A waiter has
// one watch on the ticket ahead that it waits for, and one on its own node. So a release
// wakes only the next waiter (of a semaphore also the waiter that is then the first). A
// refused TryAcquire is two reads. One request renews all leases that are due.
//
// A lock that is held for a tenth of a second costs one read more, once: it sets the
// watch on the lock's own node, on which renewals rely. ZooKeeper sets watches one
// at a time, so ten thousand locks that are acquired at once cost ten thousand reads
// afterwards, and none later.
//
// The driver runs one goroutine (two on a user's connection), and others while it sends
// requests, has watches to set or nodes to remove. The client has three.
//
// Package driver/internal/kvqueue, which the drivers of etcd and Consul use, says why
// this one does not.
//
// # URLs
//
//	zookeeper://[user:password@]host[:2181][,host…][/chroot]
//	zookeepers://[user:password@]host[:2281][,host…][/chroot]
//
// Parameters: prefix (locker), session (10s), dial_timeout (1s), password_file; for TLS
// (zookeepers:// or tls=true) ca, cert and key (files in PEM), server_name and
// insecure_skip_verify. Files are read when the URL is opened. Opening waits for no
// server. [Open] takes a URL and options, such as [WithLogger]. Host names are resolved at
// each attempt to connect. The chroot and the prefix are created. With a user the
// connection authenticates by digest, and all nodes that it creates below are open to that
// user alone; otherwise to everybody, see [WithACL]. Servers without a majority, which
// serve only readers, are not used.
package zookeeper

// Package consul keeps locks in Consul. Read package locker first, then "What loses a lock"
// below. The keys under the prefix are the driver's alone. URLs are
//
//	consul://127.0.0.1:8500
//	consuls://:TOKEN@consul.example.com:8501?ca=/etc/ca.pem&cert=…&key=…&dc=dc1
//
// with the parameters prefix (default locker), token (or as the password, or in a
// token_file), dc, namespace, partition, min_ttl, wait, dial_timeout, keepalive,
// pool_size (connections that are kept while idle), and for TLS tls (true; consuls://
// means it), ca, cert and key (files in PEM), server_name and insecure_skip_verify.
// Files are read when the URL is opened, which does not reach the server. server_name
// is the name in the agent's certificate, if it is not the host of the URL. wait is
// how long a blocking query waits on the server, 45 s unless given: shorter than the
// 60 s after which many proxies close an idle connection. Settings that the URL does
// not have are taken from Consul's own CONSUL_* variables, as in all its clients.
// [New] takes an existing client.
//
// # How it works
//
// A ticket is a key of the KV store, <prefix>/~queue/<name>/<session>-<slot>, locked
// by a session whose behaviour is "delete". Its number and fencing token is its
// CreateIndex: the index of the Raft log entry that created it. A transaction creates
// the ticket and returns the queue as of that same index, so an uncontended Acquire
// is one request and a Release another. Concurrent callers of one driver share
// requests: while two requests are under way, the creations and deletions of other
// callers go together into the next one. Keys are used again, because Consul keeps a
// tombstone of every deleted key for a quarter of an hour, and reads all of them
// whenever their prefix is read.
//
// A TryAcquire reads the queue first. If that shows that it has to wait, it is
// refused without a commit. Otherwise it creates its ticket on condition that no
// ticket that could block it was queued since, and reads again if one was: it is
// never queued and then refused. The condition is on guard keys, at most 512 whatever
// the number of names, which end with the session that made them.
//
// One session for each TTL in use carries all tickets of a driver; those with a
// MinHold have sessions of their own, which Close does not end before the minimum
// hold is over; it leaves the ticket on a session of what is left of the hold, and of
// 10 s at least. All keys are deleted with their sessions, except <prefix>/~/protocol,
// which contains the version of the stored data: the first Acquire of a driver reads
// it, and writes it if there is none. Programs of two versions would not exclude each
// other: the second is refused, with an error that says what to do.
//
// All waiters of a process for one name share a blocking query on the ticket ahead of
// the first of them. A release wakes the next waiter and nobody else; it reads the queue
// and is granted. (A semaphore of more than one permit watches its whole queue, because
// any ticket that leaves may free a permit.) Between tickets of the same Driver no query
// is needed: the answer to the release shows that the next ticket is still there. A process
// that waits for more than 48 names watches the rest through one query of all
// tickets, so 10,000 waiters need some 50 connections; agents allow 200 for each
// client address unless limits.http_max_conns_per_client says otherwise. That query
// reads all tickets at each change, with a pause between two readings, so a hand-off
// takes about 3 ms longer for each hundred tickets that there are.
//
// # Which answers are trusted
//
// Transactions, which pass through Raft, and reads in "consistent" mode say that a
// ticket is queued, and what is ahead of it. Blocking queries in "default" mode,
// which a deposed leader may answer, are trusted only when they say that a ticket
// ahead has gone, at an index at which it had been created: a ticket that has gone
// never comes back with the same index, because a key that is there, even if somebody has
// unlocked it by hand, is deleted before it is used again. If an answer says that a session
// of this driver is gone, the driver asks again in consistent mode before it reports a
// loss, since a leader that has just started answers renewals before it has read its
// log.
//
// # Leases
//
// Consul ends a session between one and two times its TTL after the last renewal, and
// gives no TTL under 10 s (session_ttl_min; see [WithMinTTL]) nor over 24 h, which is
// refused with ErrUnsupported. So after a crash the queue moves on 2 × max(TTL, 10 s)
// + 1 s after the last renewal at the latest; time without a leader comes on top,
// since a new leader begins every TTL anew. The core ends shorter and fixed leases in
// time while the process lives. Different TTLs mean different sessions: a program
// uses a few. An extension (Lock.Extend) beyond the session's TTL is kept by renewals: it
// ends with the session if the process dies or is cut off. A lock that has to outlast an
// outage is acquired with a TTL of more than one and a half times that.
//
// Sessions have no health checks: only the TTL ends them, not the failure of the
// agent. They have no lock-delay either, which protects a key from its next holder:
// here every ticket is a key of its own, and fencing tokens protect the resource.
//
// # What loses a lock
//
// A lock is lost when its session ends: by its TTL, by an operator (consul session
// destroy), or because the node of the agent that created the session left the cluster
// or was deregistered. The holder is notified at once, as it is of a Break by any
// locker. If a holder's key is deleted or unlocked by hand, the next is granted, and only
// the next renewal of the holder finds out, a third of the TTL later at most: use Break
// (locker break) instead. A renewal looks for 512 tickets of one session, those that were
// not looked for the longest; if a process holds more, its next renewals look for the others.
// A holder without renewals (WithoutRenewal) learns of it at its release or extension.
// A waiter whose key is deleted or unlocked finds out before it is
// granted, or at the end of its blocking query (parameter wait), and is queued anew, at the
// end. A key that was unlocked blocks nobody, and stays until it is deleted. A loss in the
// first fifth of a second of a ticket is noticed after that time.
//
// A change of leader loses nothing; the loss of a majority of servers stops
// everything until leases end by their holders' clocks. Restoring a snapshot brings
// old sessions back; the index, and so the tokens, go on growing.
//
// # Access
//
// With ACLs the token needs, for the default prefix, these rules and no others:
//
//	key_prefix "locker/"  { policy = "write" }
//	session_prefix ""     { policy = "write" }
//
// The second rule may be narrowed to the node of the agent, which makes the sessions.
// No rule may hide keys below the prefix from it: a driver that cannot see the
// whole queue cannot know who is first. Tokens are never printed.
//
// Errors of an agent that has no leader at the moment, or that limits rates, are
// retried within the caller's context, with growing pauses, and are
// driver.ErrUnavailable when it ends. A missing right is reported at once.
//
// After an outage a release that was not answered is repeated on another connection.
// That needs HTTP/1.1, which drivers opened by URL use: with HTTP/2 all requests
// share one connection, and if that is dead they fail until TCP gives it up.
//
// # Requests
//
//	uncontended acquire and release   2, or a share of that
//	a fixed lease                     one more, for its renewal
//	TryAcquire that is granted        2, or 3 if its guards have to be made, and 1 to release
//	TryAcquire that is refused        1, a read
//	contended, from another process   4 a grant, whatever the number of waiters
//	contended, from the same process  2
//	renewal                           1 for each session, and 1 for every 64 tickets: up to 8
//	                                  while the session is watched, and nothing was lost
//
// A contended Acquire reads the whole queue, twice. A session costs four more,
// once: its creation, two to watch for losses, its end.
//
// Tested on Consul 1.22. It needs 1.14, which can read a key that may not be there in a transaction.
package consul

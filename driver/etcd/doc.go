// Package etcd keeps locks in etcd. Read package locker first, then "What loses a lock"
// below. The keys under the prefix are the driver's alone.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints:         []string{"127.0.0.1:2379"},
//		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
//		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
//			Backoff: backoff.DefaultConfig, MinConnectTimeout: 2 * time.Second,
//		})},
//	})
//	d, err := etcd.New(client)
//	l := locker.New(d)
//
// or by URL: etcd://[user:password@]host[:2379][,host…], and etcds:// for TLS. The
// parameters are prefix (of all keys, default "locker"), dial_timeout (default 5s),
// keepalive (after how long an idle connection is probed; default and minimum 10s),
// password_file, and for TLS tls (true; etcds:// means it), ca, cert and key (files in
// PEM), server_name and insecure_skip_verify. Files are read when the URL is opened. If
// the URL has a user, opening it sends a request, since the client logs in first, and fails
// if the store cannot be reached. [Open] takes a URL and options, such as [WithLogger].
//
// # Versions
//
// It is tested with etcd 3.6. Servers from 3.4.32 and 3.5.14 on have all that it
// relies on. Before 3.4.31 and 3.5.13 a leader that was deposed, and had not noticed
// because its disk or its processor was slow, could revoke leases that were kept
// alive, and so take locks from their holders.
//
// # What it does
//
// The key <prefix>/#protocol contains the version of the stored data, and is never
// deleted. The first Acquire of a driver reads it, and writes it if there is none.
// Programs of two versions would not exclude each other: the second is refused, with
// an error that says what to do.
//
// A ticket is a key under the name's own prefix, and its number and fencing token is
// the key's create revision: etcd's order of writes is the queue. Tickets are put
// with linearizable transactions that also read the queue; a process that waits
// watches the deletions in the queue, and evaluates a view of the queue that etcd has
// ordered. The queue engine is package driver/internal/kvqueue.
//
// Requests; their number does not depend on the number of waiters:
//
//   - 2 for each acquire and release, also under contention: the put of the ticket
//     with a reading of the queue, and its deletion. 1 more, a read, if more than
//     sixteen others are ahead. A process that has no watch on the queue, or is
//     behind another ticket than before, also opens one and reads the queue; the
//     watch stays for two seconds after the last wait.
//   - 1 for a refused TryAcquire, a read: it costs the cluster no write, and other
//     clients do not notice it. If the read says that the lock is free, the ticket is
//     put on condition that it still is: 1 more than an Acquire.
//   - 2 for each renewal of any number of locks of one TTL, which share a lease: one for
//     the lease, one to see which of a hundred tickets are still there (1 for each hundred
//     if the lease is not watched for losses, and after a loss). The shared lease is also
//     kept alive, every TTL/6, by acquisitions.
//   - 1 more for a lock that is not renewed (WithoutRenewal), since its lease begins
//     with a keep-alive; and for a lock with a minimum hold, after its grant.
//   - 1, and a watch, for each lease that is in use when it is 200 ms old, or later: the key
//     that Break deletes. No driver gets messages of releases that do not concern it.
//   - 1 to remove a ticket whose put was not answered. It leaves a tombstone, a key
//     that prevents the put from being executed later; the tombstone ends with the
//     lease.
//
// A process that waits keeps the leases of its waiting tickets alive, all that share
// one with a request every TTL/3. etcd sends one message for each release to the
// processes whose first waiter is near the head of the queue; those further back
// watch only the ticket ahead of theirs. Between two tickets of one process the lock
// is handed over without a message. A process that waits reads the queue again, and
// opens a new watch, after one second, two, four, and so on up to a minute. Then it
// learns that its ticket was deleted by hand, or that the member that serves the
// watch has stopped answering.
//
// # What loses a lock
//
//   - Its lease ends: nobody has renewed it for the TTL of its acquisition, whole seconds. An
//     extension (Lock.Extend) does not change that, nor a re-entry: a lock that has to outlast
//     an outage is acquired with a TTL of more than one and a half times that. While its
//     process lives, and reaches the store, an extended lock lasts until the end of the
//     extension.
//   - Break deletes its key. The driver watches a key of each lease that is in use for longer
//     than 200 ms, which Break deletes too, so the holder is notified at once.
//   - Its key is deleted by hand: the holder learns of it at the next renewal, a third of
//     the TTL later at most. Use Break (locker break) instead. A renewal looks for a hundred
//     locks of one TTL, those that were not looked for the longest; if a process holds more,
//     its next renewals look for the others: for all of 10,000 within a hundred renewals. A
//     holder without renewals (WithoutRenewal) learns of it at its release or extension.
//   - Its etcd is restored from a snapshot. Then revisions go back too, and with
//     them the tokens, unless the restore raises the revision
//     (etcdutl snapshot restore --bump-revision --mark-compacted).
//
// If a proxy answers a request with DeadlineExceeded or Canceled, though it may have passed it on,
// the client sends it again. A driver that was opened by URL knows of that. On a client that
// was passed to [New], Release and Break then say that the lock was lost, though it was they
// that have removed it; and if the first sending of a ticket arrives after the ticket was released,
// it queues a ticket that nobody wants, which lasts until the lease ends.
//
// Compaction, a change of leader and a restart lose nothing, nor does an outage that
// is shorter than what is left of the lease; a waiter whose watch has failed opens
// another and reads the queue. A member that has no leader refuses requests at once
// if the client knows others; a client that knows only one member waits for the end
// of the election.
//
// A server that is full (its quota, alarm NOSPACE) grants nothing new, which is
// ErrUnavailable. Locks that are held are renewed and released as usual. A lease that is
// not watched for losses yet will not be until there is room: renewals look for all of its
// tickets.
//
// If a member hangs while others work, requests that are sent to it hang too. Those
// for watches and keep-alives are sent to another member after two seconds; those for
// tickets end with their context. The client gives up the connection after its
// keep-alive, 15 s with a URL.
//
// # Bounds
//
// Leases are whole seconds, rounded up, and at least one and a half election
// timeouts long, which is two seconds unless the servers are configured
// otherwise. A shorter TTL is ended by the core, while its process lives. A driver that is
// closed within a minimum hold leaves the ticket on a lease of what is left of the hold.
//
// The tickets of a process that dies, held and waiting, last as long as their leases:
// a queue moves on two seconds after the TTL at the latest, counted from the last
// renewal. Dead waiters leave the queue two seconds after their own TTL, all
// together. When etcd elects a leader, or a single server restarts, every lease
// begins anew, for its TTL and an election timeout. So the tickets of a process that
// died just before that last up to that much longer. Clients should connect to the members:
// etcd's own proxy (etcd grpc-proxy) keeps a lease alive by itself for a TTL after it was last
// asked to, so the tickets of a process that hangs last a TTL longer.
//
// # Who may write
//
// With authentication the user needs to read and write the range of the prefix, and
// nothing else (etcdctl role grant-permission ROLE readwrite locker/ --prefix=true).
// An expired login is renewed automatically. With a password the client also logs in
// for each stream that it opens, which costs the server what --bcrypt-cost says: streams
// for keep-alives are kept, so there is a login or two for each driver.
package etcd

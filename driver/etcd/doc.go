// Package etcd takes locks in etcd.
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
// or by URL: etcd://[user:password@]host[:2379][,host…], and etcds:// for TLS.
// The parameters are prefix (of all keys, default "locker"), dial_timeout
// (default 5s), keepalive (after how much silence a connection is probed, default and
// least 10s), loss_watch (default true, see WithoutLossWatch), password_file, and for
// TLS tls (true; etcds:// means it), ca, cert and key (files in PEM), server_name and
// insecure_skip_verify. Files are read when the URL is opened. With a user the URL is
// opened only if the store can be reached, since the client logs in first; without, it
// is not reached. [Open] takes a URL and options, such as [WithLogger].
//
// # Versions
//
// It is tested with etcd 3.6. From 3.4.32 and 3.5.14 on a server has all that it
// relies on. Before 3.4.31 and 3.5.13 a leader that was deposed, and had not noticed
// because its disk or its processor was slow, could have leases revoked that were
// kept alive, and with them take locks from their holders; before 3.4.32 and 3.5.14
// it could answer a question about a lease with what it knew before, so that the end
// of a ticket is noticed late where more than a hundred locks are renewed at once.
//
// # What it does
//
// The key <prefix>/#protocol says which version of all this is in use; it stays. The
// first Acquire of a driver reads it, and writes it where there is none. Programs of
// two versions would not exclude each other: the second is refused, with an error that
// says what to do.
//
// A ticket is a key under the name's own prefix, and its number and fencing token
// is the key's create revision: etcd's order of writes is the queue. Tickets are
// put with linearizable transactions that also read the queue; who waits watches the
// deletions in the queue and evaluates it on a view that etcd has ordered. All that is
// not about etcd's keys is in package driver/internal/kvqueue.
//
// Requests, of which none depends on the number of waiters:
//
//   - 2 for each acquire and release, also under contention: the put of the
//     ticket with a look at the queue, and its deletion. 1 more, a read, where
//     more than sixteen others are ahead. A process that has not just waited for
//     the name, or is now behind another ticket than then, also opens a
//     watch and reads the queue; the watch stays for two seconds after the last wait.
//   - 1 for a refused TryAcquire, a read: it costs the cluster no write, and nobody
//     sees it. If the read says that the lock is free, the ticket is put on condition
//     that it still is: 1 more than an Acquire.
//   - 2 for each renewal of any number of locks of one TTL, which share a lease:
//     one for the lease, one to see which tickets are still there; 1 more for each
//     hundred tickets that are gone, where more than a hundred are renewed. The shared
//     lease is also kept alive, every TTL/6, by acquisitions.
//   - 1 more for a lock that is not renewed (WithoutRenewal), whose time starts with
//     a keep-alive. So does that of a lock with a minimum hold, after its grant.
//   - 1 to remove a ticket whose put was not answered. It leaves a tombstone, a key that
//     keeps the put from being done later; it ends with the lease.
//
// A process that waits keeps the leases of its waiting tickets alive, all
// that share one with a request every TTL/3. A release is told, in one message
// each, to the processes whose first waiter is near the head of the queue; those
// further back watch only the ticket ahead of theirs. What a release frees
// for a ticket of the same process is handed over without. The queue of somebody
// who waits is read again, and its watch made anew, after one second, two, four and so
// on up to a minute, which is when a waiter learns that its ticket was deleted by hand,
// and that the member which it watches has stopped answering.
//
// # What loses a lock
//
//   - Its lease ends: nobody has renewed it for the TTL.
//   - Its key is deleted: by Break, or by hand. A lock that is held for longer
//     than 200 ms is watched, so the holder is told at once; without the watch
//     (WithoutLossWatch) at the next renewal.
//   - Its etcd is restored from a snapshot. Then revisions go back too, and with
//     them the tokens, unless the restore is told not to
//     (etcdutl snapshot restore --bump-revision --mark-compacted).
//
// Compaction, a change of leader and a restart lose nothing, nor does an outage
// that is shorter than what is left of the lease; a waiter whose watch has
// failed makes another and reads the queue. A member that has no leader refuses
// requests at once if the client knows others; a client that knows only one
// member waits for the election there.
//
// A member that hangs, while others work, hangs the requests that are sent to it:
// those for watches and keep-alives are sent to another member after two seconds,
// those for tickets end with their context. Its connection is given up after the
// client's keep-alive, 15 s with a URL.
//
// # Bounds
//
// Leases are whole seconds, rounded up, and at least one and a half election
// timeouts long, which is two seconds unless the servers are configured
// otherwise. A shorter TTL is ended by the core, while its process lives.
//
// A process that dies has its locks and its places in the queue for as long as its
// leases last: a queue moves on at the latest two seconds after the TTL, counted
// from the last renewal, and so do the places of dead waiters (after their own
// TTL), all of them together. When etcd elects a leader it starts every lease
// anew, for its TTL and an election timeout more; so does a restart of a single
// server. What died within a TTL before that holds on for so much longer.
//
// # Who may write
//
// With authentication the user needs to read and write the range of the prefix,
// and nothing else (etcdctl role grant-permission ROLE readwrite locker/
// --prefix=true). A login that has run out is renewed by itself. With a password
// the client logs in for each keep-alive, too: one more request, which costs the
// server what its --bcrypt-cost says.
package etcd

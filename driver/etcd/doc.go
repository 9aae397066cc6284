// Package etcd takes locks in etcd.
//
//	client, err := clientv3.New(clientv3.Config{
//		Endpoints:         []string{"127.0.0.1:2379"},
//		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
//	})
//	d, err := etcd.New(client)
//	l := locker.New(d)
//
// or by URL: etcd://[user:password@]host[:2379][,host…], and etcds:// for TLS.
// The parameters are prefix (of all keys, default "locker"), dial_timeout
// (default 5s), loss_watch (default true, see WithoutLossWatch) and, for
// etcds://, ca, cert and key (files in PEM), server_name and insecure (true: do
// not verify the server's certificate). With a user the URL is opened only if
// the store can be reached, since the client logs in first.
//
// It is tested with etcd 3.6, and uses nothing that 3.4 does not have.
//
// # What it does
//
// A ticket is a key under the name's own prefix, and its number and fencing token
// is the key's create revision: etcd's order of writes is the line. Tickets are
// put, and lines evaluated, with linearizable transactions; who waits watches the
// deletions in the line and evaluates it on a view that etcd has ordered.
//
// Requests, of which none depends on the number of waiters:
//
//   - 2 for each acquire and release, also under contention: the put of the
//     ticket with a look at the line, and its deletion. 1 more, a read, where
//     more than sixteen others are ahead. A process that has not just waited for
//     the name, or now stands behind another ticket than then, also opens a
//     watch and reads the line; the watch stays for two seconds after the last wait.
//   - 1 for a refused TryAcquire: it puts a ticket on condition that it is
//     granted. A permit (Limit) that others hold too takes 2 to get.
//   - 2 for each renewal of any number of locks of one TTL, which share a lease:
//     one for the lease, one to see which tickets are still there. A lease that is
//     shared is also kept alive, every TTL/6, by acquisitions.
//   - A fixed lease (WithoutRenewal) is of its own: 2 more, and 1 more for one
//     that has waited.
//
// A process that waits keeps the leases of its waiting tickets alive, all
// that share one with a request every TTL/3. A release is told, in one message
// each, to the processes whose first waiter is near the front of the line; those
// further back watch only the ticket ahead of theirs. What a release frees
// for a ticket of the same process is handed over without. The line of somebody
// who waits is read again after one second, two, four and so on up to thirty,
// which is when a waiter learns that its ticket was deleted by hand.
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
// failed makes another and reads the line. A member that has no leader refuses
// requests at once if the client knows others; a client that knows only one
// member waits for the election there.
//
// # Bounds
//
// Leases are whole seconds, rounded up, and at least one and a half election
// timeouts long, which is two seconds unless the servers are configured
// otherwise. A shorter TTL is ended by the core, while its process lives.
//
// A process that dies has its locks and its places in line for as long as its
// leases last: a line moves on at the latest two seconds after the TTL, counted
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

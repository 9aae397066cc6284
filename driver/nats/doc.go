// Package nats keeps locks in NATS JetStream, in a Key-Value bucket. It needs nats-server 2.11 or newer. Read package
// locker first. The entries under the prefix are the driver's alone.
//
// JetStream acknowledges a write when its servers have given it to the operating system, and flushes it to the disks
// every two minutes. So know first what is lost when. A server that ends, or is killed, loses nothing; nor does a
// bucket with three replicas of which one is killed. But a machine that loses its power, or whose system crashes,
// forgets up to two minutes of what it has acknowledged. Locks are lost if that is the machine of the only server, if
// it happens to two of three at once, or if it happens to one while another is behind. The next to ask may then be
// granted a lock that somebody holds; the holder notices at its next renewal, a third of the TTL later at the most.
// Set sync_interval: always in the jetstream block of each server: then every lock is on the disks of a majority
// before it is granted. Tokens grow all the same, because they follow the wall clock, unless the clocks of the machines
// differ by more than the outage took, less two seconds: compare them (package fence) where two holders would cost money.
// A bucket that is deleted loses its locks too; the next request makes it anew.
//
//	nc, err := natsgo.Connect("nats://n1,nats://n2,nats://n3", natsgo.PingInterval(time.Second), natsgo.MaxReconnects(-1))
//	d, err := nats.New(nc)
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "nats://n1,n2,n3?bucket=locks")
//
// Parameters of the URL are prefix, bucket, replicas, ttl, timeout and dial_timeout (2s each), those about TLS
// (tls=true, ca, cert, key, server_name, insecure_skip_verify), password_file, token_file and credentials_file. A user
// without a password is a token.
//
// # How it works
//
// The queue of a name is one entry of the bucket, changed by compare-and-swap on its revision. Package casqueue, in
// driver/internal, explains that, and how a process is found to be dead although NATS has no sessions. The key of the
// entry is a hash of the name, and the entry contains the name itself; names whose hashes are equal share an entry.
// Each entry has a time to live, so that nothing is left of locks that nobody uses: a minute after their last ticket at
// the most. Each server counts that time by its own clock. A server may lose a lock if its clock is set forward, or is
// ahead of the leader's, by a minute, or by two thirds of a TTL if that is less. While processes come and go, setting the
// leader's clock forward ends leases sooner by as much. A process that waits does not poll:
// the bucket republishes the notifications that processes write for each other.
//
// The driver's readings are linearizable. Those of JetStream are not: replicas answer without asking each other, and a
// leader that stood still answers with what it knew. A process that believed such an answer could take a holder for
// dead whose heartbeats went to the new leader. So each reading writes first, and then reads from a server that has
// that write.
//
// The driver makes the bucket if there is none: with files, three replicas in a cluster (else one), entries with times to
// live, and republishing to _LOCKER.BUCKET. It refuses a bucket that is kept in memory, discards entries, or marks expired ones
// (LimitMarkerTTL), since such a bucket loses locks, and one that lacks what the driver needs. The revisions of a new
// bucket begin with the clock, so that none comes twice even if the bucket is made anew. In a cluster, a new bucket
// has to elect its leader: a request for a lock may meanwhile fail because NATS has not answered. Make the bucket
// before you need it, with Ping.
//
// Each write removes the entry before it (Nats-Rollup). A bucket that keeps one revision of a key removes it by itself, but
// its servers do not write that down. When one of them is killed, or ends while its disk is full, it may have a ticket
// again that was released: the last one of a name, if nobody has used the name for 30 s
// (https://github.com/nats-io/nats-server/issues/8505). So the buckets that the driver makes may keep 64 revisions, and
// have one. A bucket that somebody has made with one revision is accepted; this is changed, while all its programs are
// stopped: nats stream edit KV_BUCKET --max-msgs-per-subject=64.
// It still happens, to few entries. A server does not write down that the last entry of one of its files, of 4 MB, was
// removed, if it keeps that file because of what the file says of older ones; and a server that is killed amid a release
// may have written one half of it. So a few released tickets may be back when servers were killed (SIGKILL, no memory),
// whatever sync_interval is: 30 s after their release, if nobody has used the name since. Such a ticket blocks its name
// for a TTL if its process uses no other lock or asks for the name itself, else as long as others queue behind it once in
// a TTL and a minute or so, and that process lives; it makes no two holders. Servers that are ended with SIGTERM bring
// back none. What blocks a name can be broken (locker break).
//
// # Bounds
//
// With a TTL t, a live waiter is granted the lock of a holder that has died within t + 5 % + 0.5 s + a quarter of t (a
// second at most): 12 s for a TTL of 10 s. That counts from the last renewal, or from the arrival of the first waiter
// if that is later. Processes that come and go, and wait for a moment or not at all, need the time from one to the next
// in addition: what one of them has seen helps the next. They measure that by the clock of the bucket's leader, and begin
// anew when another server leads. Waiters that have died delay the queue by 5.7 s, all together, or by 7.7 s if eight or more of them
// were next to each other. The shortest lease is one second: the core ends shorter ones while its process lives. The
// clocks of machines may differ by 30 s. If they differ more, the first token after a time in which nobody used a name
// can be less than the last one before.
//
// When the leader of a bucket is lost, the others elect one within 4 to 10 s, in which nothing is granted or renewed:
// take a TTL of 20 s or more to keep locks through that. If the election takes longer than 4 s, waiters queue again, in
// any order.
//
// A queue has to fit into a message: 1 MiB, unless max_payload says otherwise, is about 6,000 waiters for one name. A
// ticket for which there is no space left is refused with an error that says so. If the bucket itself is limited (max_bytes
// or max_msgs), locks of other names are refused when three quarters of it are used, since a full bucket would refuse
// renewals and releases. A limit that it is given later counts after a second. A limit of the account, or a full disk, is
// not seen before it is reached: then nothing is granted, renewed or released, and leases end.
//
// # Costs
//
// Acquire and Release of a free lock take one request each. A reading takes two more: it is needed if this process has
// not used the name in the last 30 s, or another one has used it since. The first use of a name in 30 s makes its
// entry, with one more request; and once a second at most, another one asks how large the bucket may be. A process that
// waits sends five small requests a second, however many locks it waits for; two of them are writes, which cost a sync
// of the disks with sync_interval: always. A process that holds locks sends one heartbeat for all of them in each round
// of renewals, reads their entries, a hundred at a time, and writes each entry once a minute so that the server does
// not forget it. On two busy processors a hand-off between 16 processes took 2 ms and 7 requests; with 256 processes it
// took 10 ms and 21 requests. With five times the load on these processors it took 14 ms and 45 requests; then some of
// the 256, which came at once, were told that NATS had not answered in the 10 s that the core waits.
//
// A process that is refused, without having seen the holder before, reads the holder's heartbeat and the leader's clock,
// and writes what it has seen, and the heartbeat again, unless the entry says it: six requests more. Until the holder's
// next sign of life the next such processes write nothing. If others wait, their heartbeats count too, and that of the
// next one is written again, with one more request. A wait that ends without a grant costs the same, in the background.
//
// If another process takes and releases a name without a pause, a process that asks for it has to find a moment between
// two changes of the entry. Its ticket may be queued a fraction of a second late.
//
// # Rights
//
// Publish to $KV.BUCKET.>, $JS.API.STREAM.INFO.KV_BUCKET and $JS.API.DIRECT.GET.KV_BUCKET; subscribe to _INBOX.>, or to
// what the connection has in its place (CustomInboxPrefix), and _LOCKER.BUCKET.>. Without the last one, processes that
// wait poll. $JS.API.STREAM.CREATE.KV_BUCKET is needed once, to make the bucket. NATS answers nothing that it forbids: the
// error comes after one to three timeouts, and names the subject. Ping needs the same rights, except _LOCKER.BUCKET.>.
//
// # Versions
//
// Tested with nats-server 2.14.
package nats

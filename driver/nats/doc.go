// Package nats keeps locks in NATS JetStream, in a Key-Value bucket. It needs nats-server 2.11 or newer.
//
// JetStream acknowledges what its servers have in memory and have given to the operating system, and writes it to
// the disks every two minutes. So know first what is lost when. A server that ends, or is killed, loses nothing; nor
// does a bucket with three replicas of which one is killed. But a machine that loses its power, or whose system
// crashes, forgets up to two minutes of what it has acknowledged. If that is the machine of the only server, or happens
// to two of three at once, or to one while another is behind, locks are gone: the next to ask may be granted what
// somebody holds, who notices at the next renewal, a third of the TTL later at the most. Set sync_interval: always in
// the jetstream block of each server to have every lock on the disks of a majority before it is granted. Tokens grow
// all the same, because they follow the wall clock: compare them (package fence) where two holders would cost
// money. A bucket that is deleted loses its locks too, and the next request makes it anew.
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
// The queue of a name is one entry of the bucket, changed by compare-and-swap on its revision; package casqueue, in
// driver/internal, says how, and how a process is found to be dead although NATS has no sessions. The key of the entry
// is a hash of the name, which is in the entry itself; names whose hashes are equal share an entry. All entries have
// a time to live of their own, so that nothing is left of locks that nobody uses: a minute after their last ticket at
// the most. Each server counts that by its own clock: one that is set forward by a minute, or by two thirds of a TTL if
// that is less, or is that far ahead of the leader's, may lose a lock. A process that waits does not poll: the bucket
// republishes the notifications that processes write for each other.
//
// Readings are linearizable, which those of JetStream are not: replicas answer without asking each other, and a
// leader that stood still answers with what it knew. A process that believed them could take a holder for dead whose
// heartbeats went to the new leader. So each reading writes first, and then reads from whoever has what it wrote.
//
// The driver makes the bucket if it is not there: with files, three replicas in a cluster (else one), one revision,
// entries with times to live, and republishing to _LOCKER.BUCKET. It refuses a bucket that is kept in memory or
// discards entries, since that loses locks, and one that lacks what it needs. Its numbers begin with the clock, so that
// no revision comes twice even if the bucket is made anew. To make one on three servers takes an election of its leader:
// who asks for a lock meanwhile may be told that NATS has not answered. Make it before you need it, with Ping.
//
// # Bounds
//
// With a TTL t, the lock of a holder that has died goes to a live waiter within t + 5 % + 0.5 s + a quarter of t (a
// second at most), counted from the last renewal or from when the first waiter has come, whichever is later; with
// 10 s that is 12 s. Waiters that have died delay the queue by 5.7 s, all together, and by 7.7 s if eight or more of
// those next to each other died. The shortest lease is one second: the core ends shorter ones while its process lives.
// The clocks of machines may differ by 30 s: else the first token after a time in which nobody used a name can be less
// than the last one before.
//
// When the leader of a bucket is lost, the others elect one within 4 to 10 s, in which nothing is granted or renewed:
// take a TTL of 20 s or more to keep locks through that. Those that wait queue again, in whatever order, if it takes
// longer than 4 s.
//
// A queue has to fit into a message: 1 MiB, unless max_payload says otherwise, is about 6,000 waiters for one name. A
// ticket for which there is no space left is refused with an error that says so.
//
// # Costs
//
// Acquire and Release of a free lock are one request each, and two more if this process has not used the name in
// the last 30 s or another one has used it since: each reading is two requests. Who is the first to use a name in 30 s
// makes its entry, which is one more. A process that waits sends three small requests a second, however many locks it
// waits for; two of them are writes, and so cost a sync of the disks with sync_interval: always. A process that holds
// locks sends one heartbeat for all of them in each round of renewals, reads their entries, a hundred at a time, and
// writes each entry once a minute so that the server does not forget it. On two busy processors a hand-over between 16
// processes took 2 ms and 9 requests; with 256 it took 10 ms and 21 requests. When these processors had five times as
// much to do, it took 14 ms and 45, and some of the 256, which came at once, were told that NATS had not answered in
// the 10 s that the core waits for that.
//
// A process that asks for a name which another one takes and releases without a pause has to find a moment
// between two changes of the entry, and may be a fraction of a second late to join the queue.
//
// # Rights
//
// Publish to $KV.BUCKET.>, $JS.API.STREAM.INFO.KV_BUCKET and $JS.API.DIRECT.GET.KV_BUCKET; subscribe to _INBOX.> and
// _LOCKER.BUCKET.>, without which processes that wait poll. $JS.API.STREAM.CREATE.KV_BUCKET is needed once, to make the
// bucket. NATS answers nothing that it forbids: the error comes when the timeout is over, and names the subject. Ping
// needs the same rights, but for the last of those to subscribe.
//
// # Versions
//
// Tested with nats-server 2.14.
package nats

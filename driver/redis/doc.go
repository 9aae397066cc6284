// Package redis keeps locks in Redis or Valkey: one server, one under Sentinel, or a
// Cluster. Read package locker first, then "What loses a lock" below. Of the keys under the
// prefix, other programs may set those of exclusive holders, and no others.
//
//	l, err := locker.Open(ctx, "redis://localhost:6379")
//
//	d, err := redis.New(client) // a client of go-redis that you have already
//	l := locker.New(d)
//
// Turn the maintenance notifications of a client of your own off (MaintNotificationsConfig with
// ModeDisabled), as Open does: with them go-redis 9.17 changes the client's options while it
// connects and copies them elsewhere, which the race detector reports, and each connection takes
// one more round trip.
//
// # What the store holds
//
// The exclusive holder of a name is the plain string key prefix:{name} (see [Driver.Key]), set as
// by SET key value NX PX ms. Programs that lock with SET NX PX on that key, such as those that use
// bsm/redislock and go-redsync, and holders of this driver, exclusive or shared, exclude each
// other. On different keys they do not: a mutex of redsync uses the name itself as its key, so a
// lock of this driver with the same name does not exclude it, unless [WithKeyForm] (key_form=* in
// the URL) names that key. A key of another type, such as the hash of a Redisson lock, excludes
// this driver too: a try is refused, and a wait lasts until the key is gone. But Redisson fails
// with an error where this driver holds, so the two cannot share a name. Other libraries notify
// nobody of their releases: the process of the first waiter polls, every 5 to 200 ms. They are not
// in the queue; while a ticket of this driver waits, a release hands the key over without a gap for
// them. Inspect shows such a holder with the owner [Foreign] and a token that depends on the key's
// value alone; Break with that token removes it, and nobody who has come since.
//
// Waiters and shared holders are kept in a few keys beside it, in the same hash slot. These are
// deleted with the last waiter and shared holder. If all processes that knew of them have died,
// they expire: those of waiters after some seconds, and those of shared holders half a minute after
// their leases at the latest. Two keys stay: prefix:fence, the last token (on a Cluster one for
// each hash slot in use), and prefix:protocol, the version of the stored data. The first Acquire of
// each driver reads the version, and writes it if there is none; in a Cluster it fails while the
// master that has this key is away. Programs of two versions, or with two forms of keys, would not
// exclude each other: the second is refused, with an error that says what to do.
//
// # What is guaranteed
//
// A fencing token is the server's time in microseconds when the ticket was
// queued, or one more than the last token if that is more. So tokens grow through
// release, expiry, restart and loss of all data, as long as the server's clock,
// or after a failover the new primary's, is not behind the last token that was lost.
//
// Only the server's clock decides when a lease ends. The queue is changed by scripts: a release
// grants the next ticket and notifies its process alone, on a channel of that process. A waiter
// that is granted gets a provisional lease, which lasts as long as its process would have counted
// as alive. It confirms the grant, which begins the whole lease, at once if it has waited for more
// than half of that time, and otherwise when it has held the lock for a third of it. So dead
// waiters, however many, delay the queue by 3 s in all.
//
// A notification may come by way of a replica, when a failover has made one of the server to which
// a process listens, and the address leads to the new primary. The process notices that within a
// second of waiting and subscribes there.
//
// A release hands the lock to the next ticket at once, before the server has answered, if that is
// one of the same process which was queued directly behind another waiting ticket, both exclusive,
// not more than 0.4 s ago, for a TTL of 3 s or more. Nobody else can be granted the lock then: that
// ticket is the next one in the queue, and stays there for 2.5 s, whatever becomes of the process. A
// Break leaves an exclusive waiter in the queue until it has been there for half a second. So the order
// is the queue's, and no process gets more than it would have. Until the server has the release, it
// shows the released ticket as the holder. With replicas=n each grant waits for the server.
//
// # Servers
//
//	Redis 6.2, 7.0, Valkey 8.1              tested: one server, Sentinel, Cluster. Nothing newer
//	                                        than Redis 6.2 is used.
//	KeyDB                                   not tested. With active-replica it is refused, by Ping
//	                                        and by the first Acquire: each peer would grant the lock.
//	Redis Software, Redis Cloud             not tested. One shard, or redis+cluster:// with the OSS
//	                                        Cluster API. Never Active-Active (also as Azure's "active
//	                                        geo-replication"): each region grants by itself, and the
//	                                        server does not say that it is one of several.
//	ElastiCache, MemoryDB, Memorystore      not tested. As Redis or Valkey; those in cluster mode, and
//	                                        ElastiCache Serverless, as redis+cluster://.
//	Dragonfly                               not tested. It refuses the scripts, which name only some
//	                                        of their keys, unless it is started with
//	                                        --default_lua_flags=allow-undeclared-keys.
//	where SUBSCRIBE is refused              waiters poll every 50 ms, with a heartbeat; a holder learns of
//	                                        a break at its next renewal. Tested with a user without the right.
//
// Whatever the server is, there has to be one that grants: several that accept writes and exchange
// them later grant a lock several times.
//
// # What loses a lock
//
//   - No renewal for TTL: the process is dead, paused or cut off, or its own requests, such
//     as BLPOP, occupy all connections of a client that it shares with the driver: renewals
//     take one of the same pool.
//   - A failover to a replica that does not have it yet: replication is
//     asynchronous. [WithReplicas] (replicas=n in the URL) reports a grant only
//     when n replicas have it; choose n so that whichever is promoted is among
//     them. Without it, a grant in the last moments before a failover may be given again.
//   - A server's wall clock that is set forward, or a failover to a server whose clock is
//     ahead, ends leases earlier by as much: a key expires at a time of that clock, which
//     Redis replicates. The holder learns of it at its next renewal. Keep the clocks of the
//     servers together, and slew them.
//   - A restart of a server that does not keep its data (appendonly no), and
//     with appendfsync everysec a power cut within a second of the grant.
//   - Eviction: use a maxmemory-policy that spares locks (noeviction), or a
//     server of their own. With noeviction, a server whose memory is full refuses new
//     tickets; those that are there are granted, renewed and released.
//   - DEL by an operator. The queue moves on within a second; the holder learns of it at its next
//     renewal. Client.Break notifies it at once.
//   - In a Cluster, a move of the hash slot that takes longer than the rest of a shared lease: see
//     below.
//
// # Resharding a Cluster
//
// While a hash slot is being moved, and its keys are on two masters, Redis refuses requests that
// need several of them (TRYAGAIN). Each script names all keys of its queue and so never runs on a
// part of it: acquiring, releasing and inspecting a name of that slot wait until it has moved, and
// are repeated every 5 to 100 ms until then or until their context ends. Exclusive leases, which
// are one key, are renewed meanwhile; shared ones when the keys of the shared holders are on one
// side. Waiters of a slot that takes longer than three seconds to move may have to queue again.
//
// # Numbers
//
// Acquire and release are one request each, token included. A contended grant takes two requests,
// however many wait: to queue and to release. If the wait or the hold is long, it takes a third, to
// confirm. Requests of concurrent callers share round trips. Those that wait for one exclusive lock,
// and those that hand it on, are one run of a script then, unless readers wait for it too: where 64
// goroutines want one name, there is one request for every five grants. Renewals go out together,
// 100 leases to a request (on a Cluster one, in pipelines). A process that waits sends one heartbeat
// a second for each name it waits for, and holds one connection for its subscription. A process that
// never waits has one too, so that it can be notified of a break. What a script does grows with the
// tickets that it grants or removes: a release that admits a thousand readers occupies the server for
// some ten milliseconds.
//
// The shortest TTL is a millisecond. After a crash the next waiter is granted
// within what is left of the TTL (at least a second) and 0.2 s.
//
// A client of the user should have its default ReadTimeout or a short one: it bounds how long a
// request to a dead server occupies a connection. A Dialer that sets SO_LINGER to 0, as the driver
// does for its own clients, keeps the system from sending a request that was given up for minutes
// longer: what arrives later than five seconds after the release of its ticket could queue it again,
// for its TTL at the most. Callers return within 50 ms after their context
// has ended, whatever the client does, and Close within 100 ms. Requests that are still under way
// end by themselves after the client's timeouts. Hooks of the client (AddHook) do not see all
// requests: some are sent over copies of it with another timeout, to which go-redis gives no hooks.
//
// # URLs
//
//	redis://[user[:password]@]host[:6379][/database]     rediss:// with TLS
//	redis+sentinel://[…@]host[:26379][,host…]/name[/database]
//	redis+cluster://[…@]host[:6379][,host…]
//
// Parameters: prefix; key_form (see [WithKeyForm]); replicas and replica_timeout (default 1s);
// dial_timeout (2s), read_timeout (3s), write_timeout (as read_timeout), pool_size; tls, ca, cert,
// key (files in PEM), server_name and insecure_skip_verify; password_file; sentinel_user,
// sentinel_password and sentinel_password_file. Opening the URL reads the files, and reaches no
// server. What go-redis logs goes to standard error, as lines of text: see [LogTo].
//
// # Rights
//
// With access control lists the user needs the keys ~prefix:*, the channels
// &prefix:* and the commands of [ACLCommands]. [Driver.Ping] runs them all but those for
// listing, and reports the first that is missing. Where SUBSCRIBE is refused, waiters poll: Ping does not report that.
package redis

// Package sim finds faults by deterministic simulation: processes that use this module,
// the network and the servers live in one bubble of testing/synctest, in virtual time,
// and everything that their world decides comes from one seed. A second of processor time
// is hours of a bad day: some hundred programs, whose messages are late, lost and
// overtaken, whose servers stand still and come back, and whose processes die.
//
//	go test ./internal/sim                            # the first seeds, a few seconds
//	go test ./internal/sim -for 60s -from 1000        # more of them, until one fails
//	go test ./internal/sim -run Seeds -v -seed 4711   # one seed, step by step
//	go test ./internal/sim -run Seeds -v -seed 4711 -messages -world memcached
//	go test ./internal/sim -run Mutants -v -mutant consul
//
// A violation is reported with its seed and with the smallest plan that shows it
// (shrink.go). README.md has the score: which of the project's past faults it finds.
//
// # The parts
//
//	plan.go       what happens, drawn from a seed: programs, delays, faults; it is data
//	tricks.go     faults that begin with a message, or concern only some of them
//	crowd.go      a process with many locks, and what it has to learn by its renewals
//	times.go      lives whose steps meet the end of a lease, poll, or take a lock again and again
//	shapes.go     whole plans of a shape that is seldom drawn: many waiters in one process, a contention of a minute
//	forgets_test.go  what a Client and its driver still know of what is over
//	byhand.go     an operator who removes a ticket with the store's own tools
//	process.go    a process: a Client, its goroutines and their steps, its death
//	world.go      time, servers, and what the trace shows
//	net.go        the way between a process and a server: requests, or a stream of bytes
//	bank.go       a server that does what package driver asks for, for the core's own faults
//	memcached.go  a model of Memcached, below driver/memcached and casqueue
//	consul.go     a model of Consul's HTTP API, below driver/consul and kvqueue
//	etcd.go       a model of etcd's gRPC API, below driver/etcd and kvqueue (etcdstore.go, etcdwatch.go)
//	wire.go       the connections of gRPC, whose real client and server run in the bubble
//	dynamodb.go   a model of DynamoDB's JSON API, below driver/dynamodb and casqueue
//	nats.go       a model of JetStream and of NATS' protocol, below driver/nats, the client's connection and casqueue
//	zookeeper.go  a model of an ensemble of ZooKeeper, below driver/zookeeper and the client's connection; zkwire.go has its protocol
//	redis.go      models of Redis and of the nodes of Redlock, below driver/redis and driver/redlock:
//	              what they keep, forget and excuse; redis_server.go has their connections,
//	              redis_script.go runs the real scripts, the rest is commands
//	redlock.go    what each node of Redlock has, and has granted
//	postgres.go   a model of PostgreSQL with the functions of driver/postgres (postgres_queue.go), below that driver,
//	              its pool and sqlqueue, the engine of SQL databases; postgres_protocol.go speaks the protocol,
//	              postgres_ops.go has the statements
//	mysql.go      a model of MySQL with the statements of driver/mysql (mysql_ops.go) and its procedures (mysql_queue.go), below that
//	              driver, its client, the pool and sqlqueue; mysql_protocol.go speaks the protocol
//	sqlite.go     no model: driver/sqlite on the real SQLite, whose machine is the world's; sqlite_conn.go stands between them
//	oracle.go     what must not happen, with the true time, which only the world knows
//	              (oracle_grants.go of grants, oracle_answers.go of answers, oracle_promises.go of what a call was promised)
//	contract.go   what drivers answer, compared with what the models have (contract_stores.go) of a ticket
//	redis_over.go what is over on Redis, and stays over
//	oracle_faults.go  what a fault does not excuse
//	oracle_store.go   what is checked against the content of the store
//	oracle_inspect.go what a queue shows that somebody asks for
//	later.go      messages that are late until others have written
//	composed.go   the world "all": how its processes use two stores
//	rates.go      who asks too often
//	run.go        one run: it builds the world, does the faults, and looks at what is left
//
// The drivers are the real ones. Their servers are models (but for SQLite, which is itself) that answer the real protocol,
// so that also a driver's own requests are tried. The worlds "all" and "fallback" are
// drivers of package compose over two servers.
//
// # What is checked
//
//   - No two hold a name at once, by the contexts of their locks, unless the world has
//     broken what the store's package rests on (Memcached lost its data; Redis forgot just this
//     lease, or the end of it, when it was restarted or failed over; no majority of Redlock's nodes
//     has it), a ticket was broken, or a fallback said that it granted,
//     and its first store had not just answered. No semaphore has more holders than permits.
//   - Tokens grow. Nobody is overtaken. A minimum hold is kept.
//   - Nobody loses a lock, or a place in the queue, without a fault, a fixed lease or a
//     break as the reason. A fault is no reason for a loss before the lease is over that
//     was granted or renewed last, nor if the store was reachable for a third of the TTL
//     (5 s at least) in the time in which the lease had to be renewed. On the bank that is a second at least, and the
//     fault of one message is none for others.
//   - Nobody believes in a lease for longer than the store's lasts, also when it was extended; a fixed lease that was
//     extended lasts until then, for its process renews it where the store's is shorter; one that re-enters another lease has its
//     own length at once; and what processes on Memcached, DynamoDB and NATS
//     write down of each other's silence is true.
//   - Calls come back within 100 ms of their limits, Close in time; and their answers are
//     true: ErrNotAcquired only if somebody was in the way, and, as the end of a context, not alone if the
//     store was silent for 5 s; ErrUnavailable only in a fault, ErrClosed only after Close, no error of
//     another call. Do is back within 100 ms after its function.
//   - Nobody waits while nobody is in the way, nor, on stores with sessions, while a permit is free. The bank has no ticket of a call that has ended, or of a lease that is over, when
//     its process could have removed it for some seconds.
//   - On etcd, Consul and ZooKeeper a holder learns that its ticket was removed: on the first two each of its renewals, or
//     those of its process, looks for one more ticket.
//   - What each driver says is true, before the core has looked again: a ticket that it says is gone is not there, and
//     does not come back, whatever is still under way; a lease lasts in the store for as long as its holder
//     is told; no lease is renewed that has ended; a loss that it notifies of is one; it says once that a ticket is queued, and then
//     only a loss, Close, or the end of the call ends the wait. A node
//     of Redlock that has kept its data accepts no number that is smaller than one that has held, and no proposal after a later one; and
//     it does not keep a ticket that was released, while its process can remove it.
//     The methods of a driver are back within 50 ms after their contexts have ended, and its Close within 150 ms.
//   - Inspect shows a queue in order, and as holders only those whom the rule of grants allows; it shows who has held all the time, and
//     nobody whose release was confirmed before.
//   - On Redis and Redlock, the tickets of a process that was silent for too long do not live again, and no lease is renewed that
//     is not there. On etcd, a deletion removes no other ticket than the one that it was sent for. On Memcached, DynamoDB and NATS, a lease
//     counts from no heartbeat before which its process could be taken for dead. On PostgreSQL, no request is sent that is too late already,
//     and no ticket is asked for again and again.
//   - Events come in order, and what begins has an end.
//   - After the last fault every name can be had within the stated bounds, the queues are
//     empty, the servers keep nothing, and all goroutines end.
//
// # What it cannot show
//
// All processes share one clock, so clocks that differ, or run at different rates, and
// machines that are suspended are not simulated (but some servers have clocks of their own,
// and those of Redis, PostgreSQL and MySQL run at rates of their own); a process that is "suspended" hears and
// sends nothing and takes no step, but its timers run. Its locks end by the clock, and
// may be regranted while it is away: the oracle says about it what it says about all. A
// model may be kinder than the server that it stands for: the suites on real servers
// remain the proof for that. The order of goroutines that are ready at the same instant is
// the scheduler's, and map order and jitter are the runtime's, so a seed does not fix all;
// README.md says how much. The driver of ZooKeeper is given its connection: those that it makes itself are not run. The models of PostgreSQL and
// MySQL do one transaction after the other, so two that meet in one row do not wait for each other there; and no transaction is guarded. Clients of Redis and
// NATS connect at once: they hold a mutex while they connect, which no bubble gets past. The Sentinel and
// Cluster clients of Redis are not run; a failover is an address that leads to another server.
//
// # Sources
//
// FoundationDB is tested in this way (Zhou et al., "FoundationDB: A Distributed Unbundled
// Transactional Key Value Store", SIGMOD 2021, section 4; Will Wilson, "Testing Distributed
// Systems with Deterministic Simulation", Strange Loop 2014), as are TigerBeetle
// (docs/internals/vopr.md) and the programs that Antithesis runs. To score it by faults
// that are put back is mutation analysis (DeMillo, Lipton and Sayward, "Hints on Test Data
// Selection", 1978). Plans are shrunk as in delta debugging (Zeller and Hildebrandt, 2002).
package sim

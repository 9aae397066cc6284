// Package postgres takes locker's tickets in a PostgreSQL database.
//
//	pool, err := pgxpool.New(ctx, dsn)
//	d, err := postgres.New(pool)
//	l := locker.New(d)
//
// or locker.Open(ctx, "postgres://user@host:5432/db") with this package
// imported. Parameters of the URL are prefix, schema, liveness, listen and
// create, which the options of the same names explain, ttl, and those of pgx
// (sslmode, pool_max_conns, target_session_attrs, …).
//
// # How it works
//
// A queue is the rows of one name in the table locker_tickets. Whoever joins it
// holds the transaction-level advisory lock of the name, so that tickets
// become visible in the order of their numbers, and the numbers of one name
// are granted in order. An exclusive holder's row has slot 0, a check keeps
// that so, and the primary key is (name, slot): two exclusive holders of one
// name are impossible in the schema itself. Names are bytea, compared byte by
// byte. All times are clock_timestamp() of the database.
//
// An acquisition is one statement, a call of a function, in a transaction of
// its own, and so is a release, which also grants whoever is next and sends
// one NOTIFY to that process. It does so without the lock of the name where the
// next to be granted can be seen already: a release does not wait for those who
// are just joining. A request for a ticket carries the time, on the database's clock,
// after which its sender has given up (10 s, or the end of its context): one
// that arrives later takes no ticket.
//
// Waiters hold no connection, whatever their number: a process that waits has one row
// in locker_processes, and renews it every quarter of the liveness interval
// (WithLiveness), whether it waits for one lock or for ten thousand. Beside that it
// looks, once in that time or when the lease of a holder ends, whether the head of a
// queue has expired. So each process that waits costs two statements a second, with the
// default, whether locks are passed on or not. A process that has asked for a ticket also
// sweeps what crashed processes have left, every 45 s until the driver is closed.
//
// The driver has a connection of its own, outside the pool, to LISTEN on while
// it holds or waits for something. Where that is not to be had, because all connections
// are taken, or because a pooler (PgBouncer, in any mode) is on the way, it polls: one statement
// every 2 to 250 ms for all that the process waits for, so that a hand-off may take that
// long. It tells a pooler by the process ID of the session, which a pooler replaces, and
// leaves no LISTEN on the sessions that a pooler shares out. Requests depend on no
// state of a session, and do without prepared statements once one was
// lost. When all connections of the pool are in use for 200 ms, or a quarter of the
// time that a request has, requests go by one more connection beside it, so that
// a pool of one, taken by the work that a lock protects, does not stop the
// renewals of that lock.
//
// NOTIFY takes a lock of the whole cluster while its transaction commits: in PostgreSQL
// all transactions that notify, in all databases of a server, commit one after the
// other. Here that is each release of a lock for which another process waits, and
// nothing else; a release with nobody behind it sends none. Where commits are slow
// (synchronous replication) that bounds the contended releases of a server to one per
// commit, and other programs that NOTIFY share that bound. Poolers and WithoutListen do
// not change it: the sender cannot know who listens.
//
// # What it guarantees
//
// The rules of package driver, on PostgreSQL 12 or newer; tested on 15, and
// behind PgBouncer 1.18 in transaction mode.
//
//   - Requests: one for an acquisition that need not wait, one for a release (two
//     for that of the first of a line, which did not wait itself, to readers or
//     after a Guard),
//     one for the renewals of all locks of a Locker, up to 5,000. Who has waited adds
//     one to confirm its lease, unless it releases within a twelfth of the liveness
//     interval (0.3 s). The first acquisition, and one in ten minutes, adds one that
//     asks for the time.
//   - Shortest lease: 10 ms. A shorter one is ended by the core.
//   - After a crash of a holder the next is granted when its lease ends, at most
//     0.5 s later. Dead waiters, however many, delay the queue by 1.25 × the
//     liveness interval and 0.5 s at most; a waiter that was granted the lock and has
//     died is one of these.
//   - A grant reaches who waits for it within 100 ms where the driver can listen.
//   - Tokens come from a sequence that is kept near the clock, in microseconds.
//     They grow after everything that a sequence survives, and also after a
//     loss of committed transactions (a failover to a replica that lags, a
//     restored backup, a crash with synchronous_commit off) unless the clock goes back too.
//   - When all is released there are no rows. What a crashed process leaves, also
//     behind a live holder, is removed by whoever meets it in the queue, or within a
//     minute by the sweep of any process that has the driver open, of one in ten with
//     its first ticket. A lock that is released while
//     a transaction that it guards is open leaves its row in the same way.
//   - Deadlocks, serialization failures, timeouts of locks and statements, a server that
//     starts or is a replica for the moment, and too many connections are
//     tried again within the context; at its end the error of what refuses everybody wraps
//     driver.ErrUnavailable. Everything else is the caller's to know at once: missing
//     rights, or a full disk, which is ErrUnavailable, too.
//
// # What loses a lock
//
// A lease that is not renewed in time; Client.Break; deleting rows.
//
// Leases are measured by the wall clock of the database's server, because its rows
// have to outlive a restart of it. If that clock is stepped forward, leases end early by the
// step: the next may be granted while the holder trusts its lease until its next renewal, a
// third of the TTL at most, tells it of the loss. A step backward makes leases, and
// the wait after a crash, longer by the step; nobody is granted too early, and no token
// is smaller than one before. Let the server slew its clock (chrony, ntpd -x), and
// fence what a lock protects.
//
// Tables that are dropped while they are in use, or a database that was replaced by an
// empty one, take the queue with them. A driver that has used the tables does not make them anew:
// all its requests fail, and its holders lose their locks at the end of their leases. A
// program that starts later does not know that they were there, unless it uses
// WithoutCreate.
//
// A failover to a standby, where the URL names both servers and has
// target_session_attrs=read-write, keeps what the standby has: with synchronous
// replication (synchronous_standby_names) all that was granted, so that holders go on
// and waiters are granted afterwards. With asynchronous replication the last
// commits before the failover are lost, a grant among them: its holder is told by its
// next renewal, and until then another may have been granted the name. So
// does a crash of a server with synchronous_commit or fsync off. Then, as for any
// late holder, the fencing token protects the resource. Where the resource is this
// very database, Guard does so without a token to compare: a guarded transaction
// of a stale holder cannot commit.
//
// A transaction that stays open for hours, in any session of the database,
// keeps PostgreSQL from removing dead row versions, and makes much-used names
// slower, here as in every table that is much changed.
//
// # Rights
//
// The tables and functions are made when the first request of a driver misses them.
// Where the program's user may not make them, apply the SQL that Schema returns; its
// documentation lists the rights that the user needs. Client.Ping tells which are missing.
package postgres

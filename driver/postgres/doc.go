// Package postgres keeps locks in a PostgreSQL database. Read package locker first, then "What loses a lock" below. The
// tables are the driver's alone; people read the view (For people).
//
//	pool, err := pgxpool.New(ctx, dsn)
//	d, err := postgres.New(pool)
//	l := locker.New(d)
//
// or locker.Open(ctx, "postgres://user@host:5432/db") with this package imported. [Open] takes the same URL, and
// options.
//
// # Parameters of the URL
//
//   - prefix, schema, liveness (a duration), listen and create (true or false): as the options of the same names.
//   - durability=async: as WithAsyncDurability; a crash of the database may lose grants.
//   - dial_timeout: how long a connection to one server may take; 5s.
//   - pool_size: most connections of the pool; pgx's default: 4, or the number of processors if that is more.
//   - tls, ca, cert, key, server_name, insecure_skip_verify: tls=true speaks only TLS, and verifies that the server's
//     certificate is signed by an authority in the file ca (the system's without it), for the host or for
//     server_name; cert and key are the files of the client's own certificate. tls=false speaks no TLS.
//   - password_file: a file with the password, which is read when the URL is opened.
//   - ttl: the default lease, which the core reads.
//
// The parameters of libpq that pgx knows are valid too, with libpq's meaning: application_name ("locker"),
// connect_timeout, krbspn, krbsrvname, options, passfile, search_path, sslcert, sslkey, sslmode ("prefer"),
// sslnegotiation, sslpassword, sslrootcert, sslsni, target_session_attrs; and pgx's own: default_query_exec_mode,
// pool_max_conns, pool_min_conns, pool_min_idle_conns, pool_max_conn_lifetime, pool_max_conn_lifetime_jitter,
// pool_max_conn_idle_time, pool_health_check_period. Two parameters with the same meaning (dial_timeout and
// connect_timeout, pool_size and pool_max_conns, tls and sslmode and its companions) are refused together. Settings
// that are not in the URL are taken from libpq's environment variables (PGPASSWORD, PGSSLMODE, …).
//
// # How it works
//
// A queue is the rows of one name in the table locker_tickets. A ticket is queued under the transaction-level advisory
// lock of the name, so that tickets become visible in the order of their numbers. The row of an exclusive holder
// has slot 0, which a check enforces, and the primary key is (name, slot): two exclusive holders of one name are
// impossible in the schema. Names are bytea, compared byte by byte. All times are clock_timestamp() of the database.
//
// An acquisition is one statement, a call of a function, in a transaction of its own. So is a release, which also
// grants the next ticket, or several readers, and notifies the process of each; it does not wait for requests that are being queued. A
// request for a ticket contains the time, on the database's clock, after which it takes none: 2 s after it was sent, or the
// end of its context. If it was not answered, a release of the ticket is not confirmed before that.
//
// Waiters hold no connection. A process that waits has one row in locker_processes, which it renews every quarter of
// the liveness interval (WithLiveness), whether it waits for one lock or for ten thousand. Once in that time, or when
// the lease of a holder ends, it also checks whether the head of a queue has expired. That is two statements a second
// with the default, whether locks are passed on or not. What crashed processes have left is removed every 45 s, by one
// of the processes that have asked for a ticket and not closed the driver, on a connection of its pool.
//
// While it holds or waits for something, the driver listens (LISTEN) on a connection of its own, outside the pool. If
// it cannot, because all connections are in use or there is a pooler in between (PgBouncer, in any mode), it polls: one
// statement every 2 to 250 ms for all that the process waits for, so that a hand-off may take that long. It recognizes
// a pooler by the process ID of the session, which a pooler replaces, and leaves no LISTEN on the sessions of a pooler.
// Requests depend on no state of a session, and use no prepared statements after one was lost. When the pool has been
// exhausted for 200 ms, or a quarter of the time that a request has, the driver opens a connection beside it, so that
// a pool of one, used by the work that a lock protects, does not stop the renewals of that lock. Renewals and heartbeats have
// another one: they do not wait for requests that wait in the database.
//
// NOTIFY takes a lock of the whole cluster while its transaction commits: in PostgreSQL all transactions that notify,
// in all databases of a server, commit one after the other. Here those are the releases of locks that another process
// waits for, and more rarely Client.Break, releases of guarded locks, and grants after an expiry. Where commits are
// slow (synchronous replication) that bounds the contended releases of a server to one per commit, and other programs
// that NOTIFY share that bound. Poolers and WithoutListen do not change it: the sender does not see which processes
// listen. While the server's queue of notifications is full (pg_notification_queue_usage), because some session has
// listened in a transaction for very long, the driver sends such requests again without notifications: waiters find their
// grants by a heartbeat, within a quarter of the liveness interval.
//
// # What it guarantees
//
// The rules of package driver, on PostgreSQL 12 or newer; tested on 15, and behind PgBouncer 1.18 in transaction mode.
//
//   - Requests: one for an acquisition that need not wait, one for a release, one for the renewals of up to 5,000 locks
//     of a Locker. A lock that was waited for needs one more to confirm its lease, unless it is released within a
//     twelfth of the liveness interval (0.3 s). The first acquisition, and one in ten minutes, needs one more that asks
//     for the time.
//   - Shortest lease: 10 ms. The core ends a shorter one.
//   - After a crash of a holder the next waiter is granted the lock when the lease ends, at most 0.5 s later. Crashed
//     waiters, however many, delay the queue by 1.25 × the liveness interval and 0.5 s at most; so does a waiter that
//     was granted the lock and crashed before it confirmed its lease.
//   - A grant reaches the waiter within 100 ms if the driver can listen.
//   - Tokens come from a sequence that is kept near the clock, in microseconds. They grow after everything that a
//     sequence survives, and also after a loss of committed transactions (a failover to a replica that lags, a restored
//     backup, a crash with synchronous_commit off) unless the clock goes back too.
//   - When all is released there are no tickets. The rows of a crashed process are removed by the next process that finds
//     them in its way, or within a minute by any process that has a driver open that was used (one in ten does so with
//     its first ticket). If a lock is released while a transaction that it guards is open, its row is removed in the
//     same way. A process that gives up a request that is not answered, closes the driver and ends, may leave a ticket for
//     one TTL, if the request arrives after that, and within 2 s after it was sent.
//   - While a transaction guards a lease that is over, waiters check four times a second whether it has ended.
//   - Deadlocks, serialization failures, timeouts of locks and statements, a server that is starting or a replica
//     for the moment, and too many connections are retried until the context ends. The error then wraps
//     driver.ErrUnavailable if the database refuses everybody. All other errors are returned at once: missing rights,
//     or a full disk, which is ErrUnavailable too.
//
// # What loses a lock
//
// A lease that is not renewed in time; Client.Break; deleting rows.
//
// Leases are measured by the wall clock of the database's server, because they have to outlive a restart of it. If that
// clock is stepped forward, leases end early by the step: another may be granted the lock while the holder still relies
// on its lease. The holder's next renewal, after a third of the TTL at most, reports the loss. A step backward makes
// leases, and the wait after a crash, longer by the step; nobody is granted too early, and tokens still grow. Let the
// server slew its clock (chrony, ntpd -x), and fence what a lock protects.
//
// If the table of tickets is dropped while it is in use, or the database is replaced by an empty one, the queues are lost. A
// driver that has used the table does not create it again: all its requests fail, and its holders lose their locks at the
// end of their leases. A program that starts later does not know that it existed, unless it uses WithoutCreate. What else is
// dropped (a function, the sequence) is an error, which says how to create it. End all programs before you create the
// sequence: a new one may begin with tokens that are less than the last. A wait goes on while a right that it needs is revoked, or a
// function is dropped, as in an outage: the error at the end of its context says why, and afterwards its ticket is granted or queued
// anew.
//
// A failover to a standby, where the URL names both servers and has target_session_attrs=read-write, keeps what the
// standby has: with synchronous replication (synchronous_standby_names) that is every grant, so that holders and
// waiters go on afterwards. With asynchronous replication the last commits before the failover are lost, perhaps with a
// grant: its holder is notified by its next renewal, and another may be granted the name before that. A crash of a
// server with synchronous_commit or fsync off does the same. Then, as for any late holder, the fencing token protects
// the resource. If the resource is this very database, Guard does so without a comparison of tokens: a guarded
// transaction of a stale holder cannot commit.
//
// durability=async (WithAsyncDurability) is for those who can afford that: a request does not wait for the disk, nor for
// synchronous standbys. A crash of the database (of PostgreSQL or its machine) then loses what it has confirmed in the
// last moments: up to three times wal_writer_delay, which is 0.6 s by default. A failover loses all that the standby did
// not have yet, which nothing bounds. A grant that is lost has two holders: another may be granted the lock as soon as
// the database is back, and the first relies on it until its next renewal reports the loss, after a third of the TTL at
// most (a lock without renewal: until its lease is over). So does a renewal that is lost, once the lease before it is
// over. A release that is lost leaves the lock held until its lease ends. Waiters whose tickets
// are lost queue again. Tokens still grow. If a program crashes, and the database does not, nothing is lost.
//
// A transaction that stays open for hours, in any session of the database, keeps PostgreSQL from removing dead row
// versions. That makes much-used names slower, as it does every table that changes much.
//
// # Rights
//
// The first request for a ticket, or Ping, creates the tables and functions, if the role may. All other requests create
// nothing, and find no locks then. In production let a DBA create them, in a schema of their own, and set create=false
// (WithoutCreate):
//
//	CREATE SCHEMA locks;
//	-- and the SQL that Schema returns: locker schema postgres --schema locks | psql -1 -f -
//	GRANT USAGE ON SCHEMA locks TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON locks.locker_tickets, locks.locker_processes TO app;
//	GRANT USAGE, UPDATE ON SEQUENCE locks.locker_token TO app;
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA locks TO app;
//
// with postgres://app@host/db?schema=locks&create=false. Every role has EXECUTE unless it was revoked; if it was, grant
// it again after applying the SQL of another version. For the view, people need
//
//	GRANT USAGE ON SCHEMA locks TO ops;
//	GRANT SELECT ON locks.locker_queues TO ops;
//
// Client.Ping passes when all these rights are there, and names those that are missing.
//
// # For people
//
// SELECT * FROM locker_queues shows all queues, in order: name, position, state (holder, waiter), mode (exclusive;
// shared; shared, limit n), owner, note, age (since the grant, or of the wait), remaining (of the lease), token, id.
// Text that is not printable is shown as \x and hexadecimal digits, the form in which a bytea is written.
//
// # Versions
//
// The comment of the table locker_tickets contains the version of the schema and a hash of its text. The names of the
// functions end with both. A program of another version fails with its first request, and with every request after the
// tables were upgraded, with an error that names both versions, also with create=true: two versions never work on the
// same queues, and no program changes the tables of another version. To upgrade, apply the SQL of the new version,
// which keeps the tickets; then the programs of the old version fail (their locks end with their leases), and those of
// the new one work.
//
// # In production
//
//   - create=false, with a schema of its own and the rights above.
//   - pool_size: a connection is used for the time of one statement; waiters and holders use none, and renewals are
//     sent in batches. So it bounds how many acquisitions and releases are under way at once, and not how many locks
//     there are: 4 is a good start. In addition a process has one connection that listens, and opens one or two more while
//     the pool is exhausted: pool_size + 3 for each process, within max_connections.
//   - A pooler: behind PgBouncer, in any mode, the driver polls for grants, which takes up to 250 ms. Set listen=false,
//     or give the driver the database's own address if that is too long. While transactions use all the pooler's connections to the
//     database, renewals wait for them, too: use a role for the locks alone, for which PgBouncer has a pool of its own. PgBouncer refuses the
//     parameters options and search_path unless it is configured to ignore them.
//   - Timeouts: the core bounds requests by 10 s for an acquisition and 5 s for a release (locker.WithAnswerTimeout,
//     locker.WithReleaseTimeout); a second server has to fit into that, after the dial_timeout of the first. A
//     statement_timeout of the role does no harm if it is above a second; what it ends is retried.
//   - Several servers: postgres://app@a,b/db?target_session_attrs=read-write goes to the primary, and after a failover
//     to the new one. Locks are as safe as the commits: set synchronous_commit and synchronous_standby_names, or a
//     failover may grant again what was granted last (see above).
//   - TLS: tls=true with ca; sslmode's default, prefer, verifies nothing.
//   - Use a role for the locks alone, without the rights of the application: then a password that leaks exposes only
//     one of them.
//   - Set idle_in_transaction_session_timeout for all other roles: a transaction that stays open for hours slows these
//     tables down.
package postgres

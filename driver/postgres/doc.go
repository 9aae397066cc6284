// Package postgres takes locker's tickets in a PostgreSQL database.
//
//	pool, err := pgxpool.New(ctx, dsn)
//	d, err := postgres.New(pool)
//	l := locker.New(d)
//
// or locker.Open(ctx, "postgres://user@host:5432/db") with this package
// imported. [Open] takes the same URL, and options besides.
//
// # Parameters of the URL
//
//   - prefix, schema, liveness (a duration), listen and create (true or false): as the options of the same names.
//   - dial_timeout: how long a connection to one server may take; 5s.
//   - pool_size: most connections of the pool; pgx's default: 4, or the number of processors if that is more.
//   - tls, ca, cert, key, server_name, insecure_skip_verify: tls=true speaks TLS and nothing else, and verifies
//     that the server's certificate is one of the authorities in the file ca (the system's without it), for
//     the host or for server_name; cert and key are the files of the client's own certificate.
//     tls=false speaks no TLS.
//   - password_file: a file with the password, which is read when the URL is opened.
//   - ttl: the default lease, which the core reads.
//
// Those of libpq that pgx knows are valid too, with libpq's meaning: application_name ("locker"), connect_timeout,
// krbspn, krbsrvname, options, passfile, search_path, sslcert, sslkey, sslmode ("prefer"), sslnegotiation, sslpassword,
// sslrootcert, sslsni, target_session_attrs; and pgx's own: default_query_exec_mode, pool_max_conns, pool_min_conns,
// pool_min_idle_conns, pool_max_conn_lifetime, pool_max_conn_lifetime_jitter, pool_max_conn_idle_time,
// pool_health_check_period. Two that say the same (dial_timeout and connect_timeout, pool_size and pool_max_conns, tls
// and sslmode, with what belongs to it) are refused together. What is not given is looked for in libpq's
// environment variables (PGPASSWORD, PGSSLMODE, …).
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
// The tables and functions are made when the first request of a driver misses them, by whoever may do that. In
// production let a DBA make them, in a schema of their own, and tell the driver so by create=false
// (WithoutCreate):
//
//	CREATE SCHEMA locks;
//	-- and the SQL that Schema returns: locker schema postgres --schema locks | psql -1 -f -
//	GRANT USAGE ON SCHEMA locks TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON locks.locker_tickets, locks.locker_processes TO app;
//	GRANT USAGE, UPDATE ON SEQUENCE locks.locker_token TO app;
//	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA locks TO app;
//
// with postgres://app@host/db?schema=locks&create=false. EXECUTE is everybody's unless it was revoked, and has
// to be given again after the SQL of another version. People need for the view
//
//	GRANT USAGE ON SCHEMA locks TO ops;
//	GRANT SELECT ON locks.locker_queues TO ops;
//
// Client.Ping passes when all these rights are there, and names those that are missing.
//
// # For people
//
// SELECT * FROM locker_queues shows all queues, in order: name, position, state (holder, waiter), mode (exclusive; shared; shared,
// limit n), owner, note, age (since the grant, or of the wait), remaining (of the lease), token, id. Text that is not
// printable is shown as \x and hexadecimal digits, the form in which a bytea is written.
//
// # Versions
//
// The comment of the table locker_tickets says which version of the schema the tables are of, with a hash of its
// text, and the names of the functions end with both. A program whose version is another one fails with its first
// request, and with each one after the tables were moved under it, with an error that names both versions, also with create=true:
// two versions are never at work on the same queues, and no program changes what others run on. To move on, apply the SQL of
// the new version, which keeps the tickets; the programs of the old version then fail (what they hold ends with
// its leases), and those of the new one work.
//
// # In production
//
//   - create=false, with a schema of its own and the rights above.
//   - pool_size: a connection is used for the time of one statement, by none who waits or holds, and renewals are sent in batches.
//     So it bounds how many acquisitions and releases are under way at once, and not how many locks there are: 4 is a good start.
//     Beside the pool count one connection that listens while something is held or waited for, and one that is
//     opened when the pool has been exhausted for 200 ms: pool_size + 2 for each process, within max_connections.
//   - A pooler: behind PgBouncer, in any mode, grants are polled for, which takes up to 250 ms: say listen=false, and give
//     the driver the database's own address where that is too long. options and search_path are parameters that PgBouncer
//     refuses unless it is told to ignore them.
//   - Timeouts: the core bounds requests by 10 s for an acquisition and 5 s for a release
//     (locker.WithAnswerTimeout, locker.WithReleaseTimeout); dial_timeout should leave room in that for a second server. A
//     statement_timeout of the role does no harm if it is above a second; what it ends is tried again.
//   - Several servers: postgres://app@a,b/db?target_session_attrs=read-write goes to the primary, and after a failover to the
//     new one. Locks are as safe as the commits: synchronous_commit on, and synchronous_standby_names set, or a failover
//     may grant again what was granted last (see above).
//   - TLS: tls=true with ca; sslmode's default, prefer, verifies nothing.
//   - A role for the locks alone, without the rights of the application, keeps a leak of one from being one of the other.
//   - idle_in_transaction_session_timeout for everybody else: a transaction that stays open for hours slows these tables down.
package postgres

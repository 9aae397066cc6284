// Package mysql keeps locks in MySQL 8.0 or later, or MariaDB 10.6 or later, through
// github.com/go-sql-driver/mysql. Read package locker first, then "What loses a lock" below. The tables are the driver's
// alone; people read the view (For people).
//
//	d, err := mysql.New(db)                    // db is your *sql.DB
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "mysql://user:pass@host:3306/app")
//
// [Open] takes the same URL, and options. The driver is tested on MariaDB 10.11 and MySQL 9.7.
//
// # Parameters of the URL
//
//   - prefix (of the tables, "locker"), liveness (4s), create (true; false: see Rights): as the options of the same
//     names.
//   - dial_timeout: how long a connection may take; 5s.
//   - read_timeout, write_timeout: how long a connection may be silent within a request; no limit by default, since
//     each request has a time limit of its own.
//   - pool_size: most connections of the pool; 16.
//   - tls, ca, cert, key, server_name, insecure_skip_verify: tls=true speaks only TLS, and verifies that the
//     server's certificate is signed by an authority in the file ca (the system's without it), for the host or for
//     server_name; cert and key are the files of the client's own certificate. Also, as in a DSN, tls=skip-verify
//     and tls=preferred, which verify nothing; the latter also works with a server that has no TLS.
//   - password_file: a file with the password, which is read when the URL is opened.
//   - ttl: the default lease, which the core reads.
//
// The parameters of a go-sql-driver DSN for the connection to the server are valid too, with the same meaning: timeout,
// readTimeout and writeTimeout (for those above), allowCleartextPasswords, allowFallbackToPlaintext,
// allowNativePasswords, allowOldPasswords, checkConnLiveness, compress, connectionAttributes, maxAllowedPacket. The
// parameters for the rows and the SQL of a program (parseTime, loc, charset, collation, multiStatements, …) are
// refused: the driver needs none of them. To use a DSN, pass it to sql.Open, and the result to New.
//
// # How it works
//
// The driver is a dialect of the engine of the SQL stores (driver/internal/sqlqueue, whose package comment says how grants,
// heartbeats and notices go together). A ticket is a row of <prefix>_tickets, and its token is the row's AUTO_INCREMENT
// number, which these servers keep through restarts and through the deletion of rows. A queue that has tickets has an
// anchor: the row whose primary key is the name. So one INSERT takes a free name, and finds out that a name is not free.
// The anchor is the exclusive holder, if there is one, so the primary key forbids two. All others are inserted under their
// IDs, and their queue's anchor stays as long as they may be there.
//
// Taking a free lock, releasing one that nobody waits for and renewing leases are single statements, each its own
// transaction. All other changes of a queue are stored procedures (procedures.sql): each is one request and one transaction,
// so no process holds the lock of a row while it is slow, stopped or cut off. Who inserts a ticket locks the name first: one of
// 256 rows that the names hash to, and then the anchor. So tokens become visible in their order. A release locks the anchor
// alone: while that is locked nobody inserts a ticket of the name. So it does not wait behind those that want the name,
// however many they are. Procedures are READ COMMITTED, and lock no row of a process that has not expired, so that no
// heartbeat waits for a queue. All times are the database's, read after the locks were taken. Names are compared byte by byte.
//
// A crash or a failover may lose the last commits. Tokens grow nevertheless: the first process that uses a server after
// a start, or after it has taken over, raises AUTO_INCREMENT to that server's clock, in 2^20ths of a millisecond. Each
// request that inserts a ticket contains the server and the start that it is meant for (by server_id and UUID_SHORT),
// and does nothing on any other. Tokens grow as long as the clocks of the servers agree and fewer than a billion numbers
// a second are used on average: a ticket and a try that is refused use one, or so many as auto_increment_increment
// says. A former primary may take over again without a restart, and without the commits of the primary in between. Only
// processes that have inserted tickets on the primary in between notice that: restart the former primary first. Nor does a
// server notice that an older copy of the tables was restored while it runs: end the programs, restore, and restart it.
// Replication has to be by rows (binlog_format ROW or MIXED, the servers' defaults): under STATEMENT it would break.
//
// Requests work in any isolation level and SQL mode, but with no DSN that has transaction_read_only=1, or autocommit=0: in a session
// where autocommit is off each statement fails, with an error that says so. So it does on MariaDB in a session that was left in a
// transaction: by a BEGIN that was sent to the pool or, where completion_type is CHAIN, by each Commit and Rollback of a
// transaction of the program's own. On MySQL a lock that is taken there ends with that transaction. The driver sets nothing in the
// sessions of a *sql.DB that is yours (in its own, autocommit=1), and prepares nothing. What a deadlock,
// innodb_lock_wait_timeout, max_statement_time or KILL QUERY has ended is sent again; a procedure of the last two kinds, which
// may have been executed, only a few times.
//
// If the pool has reached its limit, a request waits 200 ms for a connection, or a quarter of its time if that is less.
// Then the driver raises the limit by one for the time of the request, so that locks are renewed even while the work
// that they protect uses all connections. Renewals and heartbeats have a connection for themselves then: they do not wait for
// requests that wait in the database.
//
// A connection to a server that has become read only (errors 1036, 1242, 1290, 1792, 1836) is given up for a new one, which may
// lead to the new primary: rejectReadOnly in the DSN is not needed. While there is no primary, requests fail with
// ErrUnavailable. An account that may write in spite of read_only cannot wait, nor call Guard or TryAcquireTx, on such a server either.
//
// The first request for a ticket, or Ping, creates the tables: all other requests find no locks then. If the table of tickets
// vanishes later, by DROP or because a session was moved to another database, a driver that has used it reports an error and
// does not create it again, since it would grant what others hold. A driver that is opened later creates it. What else is
// dropped (a procedure, another table) is an error, which says how to create it. A wait goes on while something is dropped that it
// needs, or a right is revoked, as in an outage: the error at the end of its context says why, and afterwards its ticket is granted
// or queued anew.
//
// An unanswered request for a ticket may still arrive for 2 seconds. Until then Release does not confirm that the
// ticket is gone. If another transaction locks rows of these tables, a statement that has arrived waits for them in the
// database, up to innodb_lock_wait_timeout. Then it acts on the time at which it gets to a row: it revives no lease that
// has ended, and inserts no ticket after those 2 seconds. The exception is a free lock whose last row another transaction
// is just deleting: if that takes longer, the ticket may be inserted later, and ends with its TTL. (On a server with
// --sysdate-is-now a statement takes the time at which it began.)
//
// # How a process is woken
//
// As long as something waits, and 30 seconds longer, a process has two connections more, beyond the limit of the pool. One
// does nothing but sleep: it waits for a lock of GET_LOCK (locker. and numbers) that the other has. Whoever grants one of
// the process's tickets interrupts that statement with KILL QUERY, for which an account needs no right among its own
// connections, and the process reads what it was granted. The number of the connection is in the row of the process, and is
// only used where that lock is held, so nothing else is interrupted. Both connections are closed afterwards, and not
// returned to the pool. A process does not sleep on a server that is read only.
//
// Where that is refused (processes of several accounts) or has no effect (ProxySQL and other proxies that have their own
// numbers of connections), which a process finds out, it asks for its grants instead, every 2 to 250 ms, and tries again
// after a minute. A read_timeout of less than 3 s would break the connection again and again.
//
// # Cost
//
// Acquiring a free lock is one statement, and releasing it another; each is one round trip and one commit. Under
// contention a grant takes four requests: one to be queued, one to release and grant, and two by which the process that is
// woken reads its grant and sleeps again. The first ticket of a process that waits takes some more, to register the
// process and to begin to sleep.
// A process that waits sends one heartbeat in each quarter of the liveness, reads its grants and checks its queues as often,
// with one statement each, and begins to sleep every two seconds, whatever the number of its waiters. While a transaction
// guards a lease that is over (Guard), the queue is checked every 250 ms.
//
// Enqueueing locks no table, not even for AUTO_INCREMENT under innodb_autoinc_lock_mode=1, MariaDB's default.
// Renewals go 500 to a statement. The holder notices a break at its next renewal.
//
// # What loses a lock
//
// The end of the lease; a break; deleting rows (TRUNCATE makes tokens begin again, too: restart the server after it, before the
// programs); the loss of the database's last commits, by a failover to a replica that lags or a crash under innodb_flush_log_at_trx_commit
// other than 1 (then, until you renew, others may be granted what you hold; tokens grow). All clients have to write to
// one and the same primary: with several, as in Galera or Group Replication in its multi-primary mode, rows are not
// locked across them.
//
// A step forward of the server's wall clock also ends leases early, by the length of the step: SQL has no other
// clock. Holders are notified when they renew, after a third of the TTL; until then another may be granted the lock,
// with a higher token. A step back makes leases longer, and so the time until a lock is free after a crash. Let the
// server slew its clock, not step it.
//
// # Bounds
//
// The shortest TTL is 10 ms. After a crash of the holder the next waiter is granted within the TTL and half a second;
// crashed waiters delay the queue by no more than five quarters of the liveness and half a second in all. The rows of crashed
// processes are deleted by the next process that finds them in its way, and every 45 seconds by one of the processes that
// have a driver open that was used.
//
// # Rights
//
// The tables, the procedures and the view are created at first use, which needs the rights CREATE, CREATE ROUTINE and, for
// the view, CREATE VIEW. In production let a DBA create them, with the SQL that Schema returns (locker schema mysql), set create=false
// (WithoutCreate), and give the driver's user the rights that it needs to work:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.locker_tickets TO 'locks'@'%';
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.locker_processes TO 'locks'@'%';
//	GRANT SELECT, INSERT, UPDATE ON app.locker_slots TO 'locks'@'%';
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.locker_tx TO 'locks'@'%';
//	GRANT EXECUTE ON app.* TO 'locks'@'%';
//
// Client.Ping succeeds if all these rights are there, and otherwise names one that is missing. The procedures run with the
// rights of who calls them. EXECUTE may be given for each of them instead; their names contain the version of the schema.
//
// People who read the view need
//
//	GRANT SELECT ON app.locker_queues TO 'ops'@'%';
//	GRANT SELECT ON app.locker_tickets TO 'ops'@'%';
//	GRANT SELECT ON app.locker_processes TO 'ops'@'%';
//
// # For people
//
// SELECT * FROM locker_queues shows all queues, in order: name, position, state (holder, waiter), mode (exclusive;
// shared; shared, limit n), owner, note, age (since the grant, or of the wait), remaining (of the lease), token, id.
// Text that is not printable is shown as 0x and hexadecimal digits, the form in which SQL takes it.
//
// # Versions
//
// The comment of the table locker_tickets says which version of the schema the tables are of, with a hash of its
// text, and the name of a column contains both. A program of another version fails with its first request, or with
// the next ticket that it would insert after the tables were changed, with an error that names both versions, also
// with create=true: two versions never work on the same queues. To upgrade, end all programs, drop the tables, as
// the error says, and create those of the new version; tokens go on growing. The procedures of another version are not
// called, and may be dropped. A program of the new version under
// another prefix shares no locks with the old ones.
//
// # In production
//
//   - create=false, with the rights above.
//   - pool_size: a connection is used for the time of one request; waiters and holders use none, and renewals are
//     sent in batches. So it bounds how many acquisitions and releases are under way at once, and not how many
//     locks there are. A process that waits has two connections beside it, and while the pool is exhausted the driver opens
//     one or two more, but not to remove what crashed processes have left: count pool_size + 4 for each process, within
//     max_connections. A wait_timeout of some minutes ends the connections of processes that are stopped or cut off; below
//     a minute it costs reconnections, and nothing else.
//   - Timeouts: the core bounds requests by 10 s for an acquisition and 5 s for a release
//     (locker.WithAnswerTimeout, locker.WithReleaseTimeout). A read_timeout ends a request that waits for a row
//     that a transaction of yours has locked: choose it longer than innodb_lock_wait_timeout, for which 5 s is
//     better than the default of 50 s.
//   - Poolers and proxies (ProxySQL, MaxScale, RDS Proxy): all requests have to go to the primary, reads included. No
//     session state is used but autocommit.
//   - Durability: innodb_flush_log_at_trx_commit=1 and sync_binlog=1, or a crash may grant again what was granted last.
//   - Failover: the URL names one host, which has to lead to the primary (a name that is moved, or a proxy): a server
//     that has become read only is left at once. With semi-synchronous replication
//     (rpl_semi_sync_source_wait_point=AFTER_SYNC) a failover keeps what was granted. Each server needs a server_id of
//     its own, and clocks that agree within seconds.
//   - TLS: tls=true with ca.
//   - A user for the locks alone, without the rights of the application.
package mysql

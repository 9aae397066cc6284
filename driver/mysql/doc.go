// Package mysql keeps locks as rows in MySQL 8.0 or later, or MariaDB 10.6 or
// later, reached by github.com/go-sql-driver/mysql.
//
//	d, err := mysql.New(db)                    // db is your *sql.DB
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "mysql://user:pass@host:3306/app")
//
// [Open] takes the same URL, and options besides.
//
// It is tested on MariaDB 10.11 and MySQL 9.7.
//
// # Parameters of the URL
//
//   - prefix (of the tables, "locker"), liveness (4s), create (true; false: see Rights): as the options of the same names.
//   - dial_timeout: how long a connection may take; 5s.
//   - read_timeout, write_timeout: how long a connection may be silent in the middle of a request; no limit, since
//     each request has one of its own.
//   - pool_size: most connections of the pool; 16.
//   - tls, ca, cert, key, server_name, insecure_skip_verify: tls=true speaks TLS and nothing else, and verifies
//     that the server's certificate is one of the authorities in the file ca (the system's without it), for
//     the host or for server_name; cert and key are the files of the client's own certificate. Also, as in a DSN,
//     tls=skip-verify and tls=preferred, which verify nothing, the latter with a server that has no TLS, too.
//   - password_file: a file with the password, which is read when the URL is opened.
//   - ttl: the default lease, which the core reads.
//
// Of the parameters of a DSN of go-sql-driver those that say how to reach the server are valid with their meaning there:
// timeout, readTimeout and writeTimeout (for those above), allowCleartextPasswords, allowFallbackToPlaintext, allowNativePasswords,
// allowOldPasswords, checkConnLiveness, compress, connectionAttributes, maxAllowedPacket. Those for the rows and the SQL of a
// program (parseTime, loc, charset, collation, multiStatements, …) are refused: the driver's own need none.
// A DSN is for sql.Open, whose result New takes.
//
// # Guarantees
//
// A ticket is a row of <prefix>_tickets, numbered by AUTO_INCREMENT, which these
// servers keep through restarts and through the removal of rows. The row of a name that a
// process uses again and again is kept for a while when it is free, and counts its
// tickets: a number is that of the row times 2^20, and that count. Unique indexes make
// two exclusive holders of one name impossible in the schema. A client decides on a
// grant after it has read, from the primary, the head of the line; that is sound
// because what is ahead of a ticket only ever goes away: numbers of a name become
// visible in their order (whoever takes one holds a row lock until it is committed),
// and a ticket whose time is over blocks the line until somebody has deleted it.
// Time is the database's. Names are compared byte by byte.
//
// So that numbers grow over the loss of commits, they begin again at the server's clock, in milliseconds, whenever a server
// was started or another took over: each statement that gives a number says which start of which
// server it is meant for (by server_id and UUID_SHORT) and does nothing on another. That holds as far as
// the clocks of the servers do, and as long as fewer than 1,000 rows a second were made on average. Replication has to be
// by rows (binlog_format ROW or MIXED, the servers' defaults): under STATEMENT it would break.
//
// All statements are single ones of their own transaction, but for the removal of
// expired tickets and the beginning of such an epoch. They work in any isolation level, SQL mode and
// DSN but one with autocommit=0, in which nothing would be committed: each statement
// fails in a session where autocommit is off, with an error that says so. The driver
// sets nothing in the sessions of a *sql.DB that is yours (in its own, autocommit=1), prepares
// nothing, and holds no connection while it waits. A pool of one connection will do.
// What a deadlock ends is sent again.
//
// A pool whose limit is reached is left 200 ms to give a connection. Then the driver raises its limit by one, for a connection
// of its own that it closes, lowering the limit again, when it was not used for 5 seconds:
// so work that holds all connections does not keep its locks from being renewed.
//
// A connection to a server that has come to be read only (errors 1290, 1792, 1836) is given up for a new one, which may
// lead to the new primary: rejectReadOnly in the DSN is not needed. While there is none, that is ErrUnavailable.
//
// The tables are made at first use. If they vanish later, by DROP or in a session that was put into another database, that is an error:
// they are not made anew by a driver that has used them, so that it does not grant what others hold.
// A new driver makes them.
//
// A request to take a ticket that was not answered may still arrive for 2 seconds: until then Release does not confirm
// that the ticket is gone. A statement that has arrived may wait longer for a lock in the database, up to
// innodb_lock_wait_timeout, when a transaction of others locks rows of these tables; such a ticket is found when the core
// asks again, or expires.
//
// # Cost
//
// To acquire a free lock is one statement, to release it another, each one
// round trip and one commit. One who has to wait takes two or three to stand in
// line, one to be granted, and one or two to release. To release a lock that a
// transaction was tied to by Guard takes about ten.
//
// The server cannot notify, so who waits polls: each process with one statement for
// all its waiters in the lines that are due, which reads a few rows of each, whatever the
// number of waiters. Whoever is next asks after an eighth of the time since the line last
// moved, between 0.5 ms and 50 ms; those further behind after two thirds of what
// the line, at its pace, takes to reach them, 75 ms at most. So what a grant costs all
// processes together grows with the logarithm of their number, and who is next is granted within 100 ms of a
// release, however long it has waited. At rest that is 20 statements a second for a process that waits, whatever
// the number of its waiters on up to 100 names. A release in
// the same process is noticed at once. Another statement, every quarter of the liveness,
// shows that the waiters' process lives.
//
// To enqueue locks no table: not even AUTO_INCREMENT under innodb_autoinc_lock_mode=1, MariaDB's default. On MariaDB with
// the binary log synced at each commit, two processors, 16 clients that enqueue and leave and 16 that take and release free names
// do 400 and 700 of these a second; they did 160 and 300 with that lock.
//
// Renewals go 500 to a statement. There is nothing to push: a break is noticed at the
// holder's next renewal.
//
// # What loses the lock
//
// The end of the lease; a break; the loss of the database's last commits, by a
// failover to a replica that lags or a crash under innodb_flush_log_at_trx_commit
// other than 1 (others may then be granted what you hold until you renew; tokens grow). All clients have to write to
// one and the same primary: with several, as in Galera or Group Replication in its
// multi-primary mode, rows are not locked across them.
//
// Also a step forward of the server's wall clock, by as much as it is stepped: SQL has no other clock. Holders hear of it
// when they renew, after a third of the TTL; until then another may have been granted, with a higher token. A step back lengthens
// leases, and so the time until a lock is free after a crash. Have the clock slewed, not stepped.
//
// # Bounds
//
// The shortest TTL is 10 ms. After a crash of the holder the next waiter is granted
// within the TTL and half a second; dead waiters delay the line by no more than
// the liveness and half a second in all. Rows that dead processes leave are removed by
// whoever meets them in line, or by the sweeps of any process that has used its driver once: 15 seconds after each
// use, and every 45 seconds as long as the driver is open.
// Those of free names are removed by their process when it has not used them for 10
// seconds (1,024 names at most) and when it closes the driver, and after a minute by others.
//
// # Rights
//
// The tables and the view are made at first use, which takes CREATE, and CREATE VIEW, without which there is no view. In production let a DBA make
// them, with the SQL that Schema returns (locker schema mysql), tell the driver so by create=false (WithoutCreate), and give its
// user what it needs to work:
//
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.locker_tickets TO 'locks'@'%';
//	GRANT SELECT, INSERT, UPDATE ON app.locker_slots TO 'locks'@'%';
//	GRANT SELECT, INSERT, UPDATE, DELETE ON app.locker_tx TO 'locks'@'%';
//	GRANT SELECT, UPDATE ON app.locker_epochs TO 'locks'@'%';
//
// Client.Ping passes when all these rights are there, and tells of one that is missing; the first request that needs it does so
// at once. People who look at the queues need
//
//	GRANT SELECT ON app.locker_queues TO 'ops'@'%';
//	GRANT SELECT ON app.locker_tickets TO 'ops'@'%';
//
// # For people
//
// SELECT * FROM locker_queues shows all queues, in order: name, position, state (holder, waiter), mode (exclusive; shared; shared,
// limit n), owner, note, age (since the grant, or of the wait), remaining (of the lease), token, id. Text that is not
// printable is shown as 0x and hexadecimal digits, the form in which one writes it in SQL.
//
// # Versions
//
// The comment of the table locker_tickets says which version of the schema the tables are of, with a hash of its text, and a
// column has a name with both. A program whose version is another one fails with its first request, and with the next
// ticket that it would take after the tables were changed under it, with an error that names both versions, also with
// create=true: two versions are never at work on the same queues. To move on, end all programs, drop the tables, as
// the error says, and make those of the new version; tokens go on growing. A program of the new version under another prefix
// shares no locks with the old ones.
//
// # In production
//
//   - create=false, with the rights above.
//   - pool_size: a connection is used for the time of one request, by none who waits or holds, and renewals are sent in batches.
//     So it bounds how many acquisitions and releases are under way at once, and not how many locks there are. While
//     the pool is exhausted for 200 ms the driver opens one connection beside it: count pool_size + 1 for each process, within
//     max_connections. A wait_timeout below a minute costs reconnections, and nothing else.
//   - Timeouts: the core bounds requests by 10 s for an acquisition and 5 s for a release
//     (locker.WithAnswerTimeout, locker.WithReleaseTimeout). A read_timeout ends a request that waits for a row that a transaction
//     of yours has locked: let it be longer than innodb_lock_wait_timeout, which 5 s suit better than the default of 50.
//   - Poolers and proxies (ProxySQL, MaxScale, RDS Proxy): all requests have to go to the primary, reads included. No session state is
//     used but autocommit.
//   - Durability: innodb_flush_log_at_trx_commit=1 and sync_binlog=1, or a crash may grant again what was granted last.
//   - Failover: the URL names one host, which has to lead to the primary (a name that is moved, or a proxy): a server that has
//     become read only is left at once. With semi-synchronous replication (rpl_semi_sync_source_wait_point=AFTER_SYNC) a
//     failover keeps what was granted. Each server needs a server_id of its own, and clocks that agree within seconds.
//   - TLS: tls=true with ca.
//   - A user for the locks alone, without the rights of the application.
package mysql

// Package mysql keeps locks as rows in MySQL 8.0 or later, or MariaDB 10.6 or
// later, reached by github.com/go-sql-driver/mysql.
//
//	d, err := mysql.New(db)                    // db is your *sql.DB
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "mysql://user:pass@host:3306/app")
//
// Parameters of the URL: prefix (of the tables, "locker"), liveness (4s), create
// (true; false: see Schema), tls (false, true, skip-verify, preferred), pool (most
// connections at once, 16), ttl.
//
// It is tested on MariaDB 10.11 and MySQL 9.7.
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
// All statements are single ones of their own transaction, but for the burial of
// dead tickets, a transaction of four. They work in any isolation level, SQL mode and
// DSN but one with autocommit=0, in which nothing would be committed: each statement
// fails in a session where autocommit is off, with an error that says so. The driver
// sets nothing in the sessions of a *sql.DB that is yours (in its own, autocommit=1), prepares
// nothing, and holds no connection while it waits. A pool of one connection will do.
// What a deadlock ends is sent again.
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
// moved, between 0.5 ms and 100 ms; those further behind after two thirds of what
// the line, at its pace, takes to reach them, 200 ms at most. So what a grant costs all
// processes together grows with the logarithm of their number. A release in
// the same process is noticed at once. Another statement, every quarter of the liveness,
// shows that the waiters' process lives.
//
// Renewals go 500 to a statement. There is nothing to push: a break is noticed at the
// holder's next renewal.
//
// # What loses the lock
//
// The end of the lease; a break; the loss of the database's last commits, by a
// failover to a replica that lags or a crash under innodb_flush_log_at_trx_commit
// other than 1, which may also repeat fencing tokens. All clients have to write to
// one and the same primary: with several, as in Galera or Group Replication in its
// multi-primary mode, rows are not locked across them.
//
// # Bounds
//
// The shortest TTL is 10 ms. After a crash of the holder the next waiter is granted
// within the TTL and half a second; dead waiters delay the line by no more than
// the liveness and half a second in all. Rows that dead processes leave are removed by
// whoever meets them in line, or by a sweep, some 15 seconds after a driver was used.
// Those of free names are removed by their process when it has not used them for 10
// seconds (1,024 names at most) and when it closes the driver, and after a minute by others.
//
// # Rights
//
// The user needs SELECT, INSERT, UPDATE and DELETE on the tables, and CREATE if
// the driver is to make them.
package mysql

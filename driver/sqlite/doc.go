// Package sqlite keeps locks in a file that the processes of one machine share. It needs no server. Read package
// locker first, then "What can go wrong" below. The file is the driver's alone.
//
//	d, err := sqlite.New("/var/lib/app/locks.db") // the first Acquire makes the file and its folder
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "sqlite:///var/lib/app/locks.db")
//
// A relative path begins with a dot: sqlite://./locks.db. Parameters of the URL are create (true; see
// WithoutCreate), busy_timeout (5s; see WithBusyTimeout) and ttl. There is no prefix: use another file.
//
// It is the smallest driver on the engine of the SQL stores (driver/internal/sqlqueue, whose package comment says how
// grants, heartbeats and notices go together), and the one to read before you write your own. Each section below
// is about one thing that every driver has to decide, and names the file that does it.
//
// # Tickets
//
// A ticket is a row of one table (schema.sql), and a queue is the rows of one name. Every request is one
// transaction (queue.go, wire.go). SQLite executes one writing transaction at a time, so each request happens
// at one instant. It first removes everything that has expired (reap in wire.go): what it finds afterwards is
// alive. The grant rule is that of package driver, applied to the beginning of the queue. A unique index makes
// two exclusive holders of one name impossible. To take a lock that nobody has, and to release one that nobody
// waits for, takes a single statement, which is its own transaction.
//
// # Tokens
//
// A ticket's token is its AUTOINCREMENT key: one counter for all names, which never gives a number twice, also
// after rows were removed. Commits are not flushed to the disk one by one (synchronous=NORMAL): a loss of power can
// take the last ones, but cannot damage the file. The first process after a boot therefore skips 2^32 numbers, and flushes
// that. Numbers begin again when the file is removed.
//
// # Time and leases
//
// All processes use the one clock of their machine (os_linux.go): CLOCK_BOOTTIME, which cannot be set and which
// counts the time in which the machine was suspended. It begins at zero with each boot, so the file contains the
// boot ID of the kernel: after a reboot all leases are over, and the first process removes them (file.go). A lease ends
// by itself and not before its TTL, also if its process was killed. On other systems than Linux the clock is the wall
// clock: a reboot ends no lease early, and setting the clock moves their ends.
//
// # Liveness
//
// A waiting ticket lives as long as the row of its process. A background task of the engine renews that row every
// 0.8 s while the process waits, whatever the number of its tickets. A process that sends no heartbeat for 3.2
// seconds loses all its waiting tickets together; if it still runs, its waiters queue again. So killed waiters
// delay a queue by at most four and a half seconds, all together, and a killed holder by half a second more than
// its TTL. A process that was granted a lock while it waited, and is killed before its first renewal, delays it as a
// waiter does: until then the lease ends with the row.
//
// A process executes its renewals, heartbeats and releases before its acquisitions: neither ten thousand of these
// nor a slow disk delay a renewal by more than one transaction. Only a flush of the disk does, when a process
// writes the log back into the database: leases have to be longer than two flushes.
//
// # Notification
//
// Each process that holds or waits reads a named pipe of its own, in the folder locks.db-notify (notify.go). A transaction
// that removes a ticket grants the tickets that become grantable, and then a line is written to the pipes of their
// processes. The grant is in the database, so a line that is lost delays it, until the next heartbeat. Without pipes, on
// systems other than Unix or if the folder cannot be made, a process that waits looks for its grants every 20 ms, whether
// it waits for one lock or for 10,000. A process that starts later removes the pipes of killed ones.
//
// # Unknown outcomes
//
// One goroutine executes all transactions of a driver in turn (store.go). A method returns when its context ends,
// even if the disk hangs, with an error that wraps driver.ErrUnavailable. Its transaction is then still under way,
// or will never begin; later ones are executed after it. So Release, which the core repeats until it has an
// answer, finds whatever an unanswered Acquire has left.
//
// # What can go wrong
//
//   - A process that is stopped (SIGSTOP, a debugger, a frozen container) inside a writing transaction, which
//     takes a fraction of a millisecond, blocks all others until it continues or ends. Requests fail with
//     ErrUnavailable after the busy timeout, nothing is granted, and Inspect and List still work.
//   - A full disk is ErrUnavailable: nothing is granted, and releases fail too, until there is free space. Leases
//     end nevertheless.
//   - A file that is damaged, not a database, another program's, or of another schema version is refused and not
//     changed. If the user may not write to the file, the first request that writes fails.
//   - If the file, or one of SQLite's own beside it (-wal, -shm), is removed or replaced while it is in use, or its path
//     leads to another file because a link in it was changed, all requests of processes that opened the old one fail.
//   - Processes that are killed at any moment leave the database intact.
//
// # Where it may lie
//
// On a disk of the machine. SQLite's write-ahead log needs memory that all processes share, and its locks are
// unreliable over a network: NFS, SMB, 9P, Ceph and the like are refused. Containers on one kernel can share a
// file whose folder is mounted into all of them. Virtual machines, and containers with kernels of their own,
// cannot: each kernel concludes that the other's tickets are of an earlier boot, and a process that detects this
// fails with an error that says so. A file with several hard links is refused, and so is one that is mounted by
// itself: programs that open it under its other name have another log.
//
// The first Acquire makes the file with mode 0600 and its folder with 0700. Until then nothing is made: Inspect and List
// find nothing, and Ping checks whether the file may be made. To share it among users, make it first, empty, for
// their group (0660, in a folder of that group with the setgid bit): SQLite's own files and the pipes get its mode.
package sqlite

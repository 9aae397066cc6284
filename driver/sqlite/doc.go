// Package sqlite keeps locks in a file that the processes of one machine share. It
// needs no server.
//
//	d, err := sqlite.New("/var/lib/app/locks.db") // made, with its folder, if it is not there
//	l := locker.New(d)
//	l, err := locker.Open(ctx, "sqlite:///var/lib/app/locks.db")
//
// A relative path follows a dot: sqlite://./locks.db. Parameters of the URL are create
// (true; false: see WithoutCreate), busy_timeout (5s; see WithBusyTimeout) and ttl. There is
// no prefix: a file is a space of locks of its own.
//
// It is also the driver to read before you write one: each paragraph below is about one
// of the things that every driver has to decide, and names the file that does it.
//
// # Tickets
//
// A ticket is a row of one table (schema.sql), and a queue is the rows of one name. Every
// request is one transaction (acquire.go, lease.go), and SQLite executes one of those that write at
// a time, so that each request happens at one instant. It begins with the removal of all
// that is over (reap in wire.go): whatever it finds afterwards is alive. The grant rule is
// that of package driver, on the begin of the queue. A unique index makes two exclusive
// holders of one name impossible whatever programs do.
//
// # Numbers
//
// A ticket's number is its AUTOINCREMENT key: one counter for all names, which never gives
// a number twice, also after rows were removed. Commits are not flushed to the disk one by one
// (synchronous=NORMAL): a loss of power can take the last ones, though it cannot damage the file. The
// first process after a boot therefore skips 2^32 numbers. Numbers begin again when the file is removed.
//
// # Time and leases
//
// All processes use the one clock of their machine (clock_linux.go). It is CLOCK_BOOTTIME, which
// nobody can set and which counts the time that the machine was suspended: a lease
// that ended meanwhile is over when the machine wakes. It begins at zero with each boot, so the file has
// the boot ID of the kernel: after a reboot all leases are over, and the first process to
// come removes them. As the clock is the machine's, a lease needs nothing but its end, and
// a waiter that is granted counts from before the transaction that granted it. A lease ends by
// itself not before its TTL, also when its process was killed: what that started may still
// be running. On other systems than Linux the clock is the wall clock: a reboot ends no lease
// early, and a step of the clock moves their ends.
//
// # Liveness
//
// A waiting ticket lives as long as the row of its process, which a heartbeat renews every
// second while the process waits (watch.go), whatever the number of its tickets. A process that is
// silent for four seconds, because it was killed or stopped, loses all of them together; if it goes on, its
// waiters queue again. The tickets of killed waiters therefore delay a queue by four
// seconds and a half at most, all together, and a killed holder by half a second beyond its TTL.
//
// # Waking
//
// Each process reads a named pipe of its own, in the folder locks.db-notify (notify.go). Whoever
// releases a lock marks the tickets whose turn has come, in the same transaction, and then writes
// a byte into the pipes of their processes; these wake up and claim what is marked. As the mark is in the
// database, no notification can be lost for good: each process that waits looks every 250 ms as well, and when
// a lease ends. That is all it does while it waits, whether for one lock or for 10,000. Where there are no pipes, on
// other systems than Linux or when the folder cannot be made, a waiting process looks every 20 ms instead.
// The pipe of a process that was killed is removed by one that starts later.
//
// # Unknown outcomes
//
// One goroutine executes all requests of a driver in turn (store.go). A method returns when its
// context ends, with an error that wraps driver.ErrUnavailable, even if the disk hangs. Its request is
// then still under way, or will never be: those that come later are executed after it. So Release, which the core asks until it has an
// answer, finds whatever an unanswered Acquire has left. The background task treats its own
// unanswered requests in the same way: it looks at each of its tickets once more.
//
// # What can go wrong
//
//   - A process that is stopped (SIGSTOP, a debugger, a frozen container) in the fraction of a millisecond
//     in which it writes stops everybody else: SQLite's lock is its own until it goes on or is ended. Requests fail with
//     ErrUnavailable after the busy timeout, nothing is granted, and Inspect and List go on to answer.
//   - A full disk is ErrUnavailable: nothing is granted, and releases fail too, until
//     there is room. Leases end nevertheless.
//   - A file that is damaged, no database, another program's or of another schema version is
//     refused, and left as it is. So is one that the user may not write to, by the first request that writes.
//   - A file that is removed or replaced while it is in use: all requests of who has
//     opened the old one fail, as nobody else sees them.
//   - Processes that are killed at any moment leave the database whole.
//
// # Where it may lie
//
// On a disk of the machine. SQLite's write-ahead log needs memory that all processes
// share, and its locks are not to be relied on over a network: NFS, SMB, 9P, Ceph and their like are
// refused. Containers of one kernel can share a file that is mounted into all of
// them (mount its folder, not the file). Virtual machines, and containers that have a kernel each, cannot: each kernel takes the
// other's tickets for those of a boot before, and those who notice fail with an error
// that says so. A file with several hard links is refused.
//
// New makes the file with mode 0600 and its folder with 0700. To share it among users, make it
// first, empty, for their group (0660, in a folder of that group with the setgid bit): SQLite's
// own files and the pipes get its mode.
package sqlite

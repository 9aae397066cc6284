//go:build linux

// Command soak runs one store for minutes or hours, with many worker processes that
// take and release locks while servers, networks, disks, clocks and the workers
// themselves fail, and judges what the workers were granted.
//
//	go run ./internal/soak -store redis -for 20m
//
// The coordinator starts the store by internal/testbed, and the workers as processes of
// their own. In turns of some minutes it draws faults from a seed, and then leaves
// everything alone until waits have to be short again.
//
// The truth about holders does not come from the store: each worker reads
// CLOCK_MONOTONIC, finds that its lock has not ended (Lock.Err), and reports the two
// together. So at the reported time the lock was held in the eyes of its holder, however
// late the report arrives, and however long the worker is stopped afterwards. The witness
// in the coordinator compares the reports of all processes:
//
//   - Two holders at once, of which one excludes the other, or more than a limit allows.
//     A store that documents that some fault can break this (memcached that is killed,
//     a server whose clock is set forward) is excused for the time of that fault and one
//     TTL; the report counts what was excused.
//   - A token that is not greater than that of a grant which came before the request; two
//     grants with one token; an exclusive grant that arrives after one with a greater token.
//   - A name that nobody holds, while somebody waits, for longer than driver.Bounds, in a
//     time without faults.
//   - An acquisition that fails with another error than ErrNotAcquired and ErrUnavailable.
//   - TryAcquire that is refused on a name that nobody else has ever used.
//   - A lock that has not ended after its Deadline.
//   - A worker that crashes, or does not end when it is told to.
//   - A ticket that is left when all workers have ended, and all leases are over.
//
// It needs Linux. The folder of the run has totals.json and report.md. A later run with the same folder
// adds to them.
package main

// Package cabinet is the driver that docs/writing-a-driver.md builds, kept here so that it compiles and passes the
// conformance suite. Cabinet is an imaginary server that keeps small documents, on a disk, and speaks HTTP. The
// driver is to be read, and is registered in no program.
//
// Cabinet writes a document to its disk before it answers, so locks survive its restart. While it is down nothing
// is granted, and leases end as if their holders had died.
//
//	d, err := cabinet.New("cabinet:8070")
//	l, err := locker.Open(ctx, "cabinet://cabinet:8070")
//
// Parameters of the URL are prefix, ttl and timeout (of a request; 2s).
//
// # How it works
//
// The queue of a name is one document, changed by compare-and-swap; package casqueue says how, and how a process is
// found to be dead although Cabinet has no sessions. Versions are Cabinet's revisions: one counter for all
// documents, which a restart continues.
//
// # Bounds
//
// With a TTL t, the lock of a holder that has died goes to a live waiter within t + 5 % + 0.5 s + a quarter of t (a
// second at most), counted from the last renewal or from when the first waiter has come, whichever is later. Waiters
// that have died delay the queue by 5.7 s, all together. The shortest lease is one second: the core ends shorter
// ones while its process lives.
//
// A document has at most 1 MiB, which is about 6,000 waiters for one name.
//
// # Costs
//
// Acquire and Release of a free lock are one request each, and one more if this process has not used the name in
// the last 30 s or another one has used it since. A process that waits sends 10 to 20 requests a second, and a
// heartbeat each second, however many locks it waits for. A process that holds locks sends one heartbeat for all of
// them in each round of renewals, and writes each document once a minute.
package cabinet

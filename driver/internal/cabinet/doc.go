// Package cabinet is the driver that docs/engines.md builds, kept here so that it compiles and passes the
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
// The queue of a name is one document, changed by compare-and-swap. Package casqueue explains that, and how a process
// is found to be dead although Cabinet has no sessions. Versions are Cabinet's revisions: one counter for all
// documents, which a restart continues.
//
// # Bounds
//
// With a TTL t, a live waiter is granted the lock of a holder that has died within t + 5 % + 0.5 s + a quarter of t (a
// second at most). That counts from the last renewal, or from the arrival of the first waiter if that is later. Processes
// that come and go need the time from one to the next in addition: they measure by Cabinet's clock. Waiters
// that have died delay the queue by 5.7 s, all together, or by 7.7 s if eight or more of them were next to each other.
// The shortest lease is one second: the core ends shorter ones while its process lives.
//
// A document has at most 1 MiB, which is about 6,000 waiters for one name.
//
// # Costs
//
// Acquire and Release of a free lock take one request each. One more is needed if this process has not used the name in
// the last 30 s, or another one has used it since. A process that waits sends 11 to 20 requests a second, and a
// heartbeat each second, however many locks it waits for. A process that holds locks sends one heartbeat for all of
// them in each round of renewals, reads their documents, and writes each document once a minute.
package cabinet

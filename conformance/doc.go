// Package conformance tests a driver of locker with one call: every rule of
// package driver, and what the core promises on top of them. Read
// docs/writing-a-driver.md of this module next.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Open: func(ctx context.Context) (driver.Driver, error) {
//				return mystore.Dial(ctx, address)
//			},
//		})
//	}
//
// The suite is public. Drivers that pass are interchangeable, in whatever
// repository they are. It tests the public API with several drivers that are
// opened separately and stand for several processes, and it tests the driver
// interface directly where a rule is about a request that the core does not make.
// All its lock names are random, so it can share a store with other tests.
// Package driver/sqlite is a complete driver that is written to be read.
//
// # The harness
//
// Open is enough to begin with. The other fields of [Harness] make faults
// possible: a connection to the store that can be cut (OpenLink), the store
// itself, to be killed and paused (Server), and a count of what it holds (Keys).
// A case that needs a missing field is skipped, and the run ends with a summary:
//
//	103 of 134 cases passed, 2 not applicable; not fully tested: D8, D10, D18: give Keys; D6, D7, D8, …: give OpenLink; …
//
// Complete makes every case that cannot run a failure. Set it once all fields are
// given, so that none gets lost again.
//
// Package conformance/link has implementations of [Link]: a TCP proxy, and an
// interceptor for embedded stores that have no network. Without OpenLink the suite
// cuts the connection between the core and the driver. To a store whose leases end
// by themselves that looks like a crash. A driver with sessions or heartbeats goes
// on sending those, and must give OpenLink.
//
// # A store without a network
//
// The processes of an embedded store (a file, shared memory) can die too. Give
// OpenLink with a link.Interceptor, through which the driver's accesses to the
// store pass in its tests. Server is then whatever makes every access fail and
// keeps what was stored, and the store's clock is the clock of the machine (D10).
// A store in the memory of one process ends with its tickets: leave OpenLink and
// Server nil, and the summary of the run says what is not tested of it.
//
// # Rules
//
// Each case is a sub-test topic/name and logs the rules that it tests. At its end it
// checks that the names that it has used are free again, unless it leaves tickets on
// purpose. D1 to D20 are the sentences of package driver. C1 to C10 are the promises of
// the core to its callers:
//
// C1. Exclusion: the tickets that hold a name at any instant are those that
// driver.Grantable allows.
//
// C2. Fairness: grants follow the order of the queue. A waiter is notified of its
// grant and does not poll. A TryAcquire that is refused is never queued.
//
// C3. Leases: a lease that is renewed does not end. A lease that is not renewed
// ends within the bounds that the driver states, and not before its TTL. A lock
// with a minimum hold is not granted to others before that has passed.
//
// C4. Ownership: only the ID of a ticket changes the ticket. A request that is
// repeated, arrives late, or names another ticket changes no other ticket.
//
// C5. Re-entry: Acquire under the lock's context, or with its explicit owner,
// returns another handle on the same ticket. Each handle is released once, and the
// ticket is released with the last handle.
//
// C6. Fencing: the tokens of a name grow from grant to grant, whatever happens in
// between.
//
// C7. Loss: a holder that may have lost its lock notices it before the next ticket
// is granted, and every handle and context of the lock ends. A break notifies the
// holder.
//
// C8. Cleanup: the context of Acquire bounds the acquisition, not the lock. An
// Acquire that fails in any way leaves no ticket, Release works under a context
// that has ended, what is released leaves nothing in the store, and Close leaves
// no goroutine.
//
// C9. Calls: names, options, errors, time limits, Close and Inspect work as package
// locker documents them, also while the store is down or does not answer.
//
// C10. Histories: what clients observe in a random run, with cuts, crashes and
// restarts, is linearizable in the model of the queue (checked by porcupine).
//
// # Topics
//
//   - exclusion: who holds at the same time.
//   - fairness: the order of grants, hand-offs, and requests that do not wait.
//   - expiry: the end of leases, of live processes and of dead ones.
//   - min-hold: minimum holds.
//   - ownership: requests that are repeated, late, or made by others.
//   - reentry: several handles on one ticket.
//   - fencing: tokens.
//   - loss: cut-off holders, and breaks.
//   - cancellation, removal: what a failed, cancelled or unanswered request leaves.
//   - limits: answers in time, and outages that are not mistaken for contention.
//   - leaks: keys and goroutines.
//   - names, options, errors, close, inspect: the calls of these names.
//   - outage: the store is down or paused at the start, while a lock is held, and
//     while it is waited for, whatever ends the wait.
//   - history: random runs.
//
// # What it cannot test
//
// The suite cannot see everything. A driver's own tests have to cover some
// sentences: that a refusal of this caller is not ErrUnavailable (D14), that Close
// leaves the user's client open (D17), that no error contains a password (D19), and
// that a Release which the store's client has sent twice is no loss (D13). That a
// driver serves one Client (D17) is a duty of the program.
//
// # Time
//
// Upper bounds come from the driver ([driver.Bounder]) and from the rules, plus one
// second for a loaded machine; a failure names its bound. Times that this second
// would hide have cases of their own: Bounds.Crash is never less than
// the TTL, and no lease ends before it (D10); hand-offs take 100 ms (D13), returns
// 50 ms after the end of a context (D16), and Close 150 ms for a store that does not
// answer (D17). Of several measurements most must keep the bound. Beside each, a
// probe asks the store: what took too long while the store or this process stood still is
// measured again. With Keys, the minute of D18 is waited for if the driver is slow to remove
// what has expired. A driver with a method that does not return when its context has ended is found
// out before all cases, unless -run selects some: the run ends with the name of that method. A call that
// does not return in another situation fails its case after four minutes, and the run goes on.
//
// Leases last a second where the store can give that. Leases that are renewed, and must
// not be lost on a busy machine, last three. Sixteen cases run at the same time (AtOnce
// of them, if the harness says so): most of them wait. Cases that break the store, or
// count its keys, run beside them on stores of their own if the harness has NewServer, and
// otherwise after them, one by one. Cases that measure times, and the one that counts
// goroutines, run before all others, one by one; with Parallel, the others run beside the parallel
// tests of the package. A driver that uses no network can set Bubble; waiting then takes
// no time. With -short, random cases repeat less, and the cases that may wait for a minute
// are left out.
//
// # Random cases
//
// The error of a random case names its seed. With the environment variable
// LOCKER_TEST_SEED set to it, the cases draw the same numbers again. A history that is
// not linearizable is also written as a page of porcupine's, whose file is named in the
// log.
//
// # How the suite is tested
//
// Cases return errors instead of failing a testing.T, so that they can run on
// drivers that are broken on purpose. This package's tests have more than a hundred of
// them, and each case must fail on at least one.
package conformance

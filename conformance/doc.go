// Package conformance proves a driver of locker: every rule of package driver,
// and what the core promises on top of it, with one call.
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Open: func(ctx context.Context) (driver.Driver, error) {
//				return mystore.Dial(ctx, address)
//			},
//		})
//	}
//
// The suite is public: a driver that passes may be swapped for any other,
// wherever it is kept. It works at the public contract, with several drivers
// that are opened separately and stand for several processes, and at the driver
// interface where the rule is about a request that the core would not make. All
// its lock names are random, so that it can share a store with other tests. See
// examples/customdriver for a driver in one file that passes.
//
// # What to give it
//
// Open is enough to begin with. The rest of [Harness] makes faults possible: a
// way to the store that can be cut (OpenLink), the store itself, to be killed
// and stopped (Server), and a count of what it holds (Keys). A case that needs
// what is missing is skipped, by name, and the run closes with one line:
//
//	110 of 130 cases proved; not fully proved: D18: give Keys; D7, D8, D13: give OpenLink; …
//
// Complete makes every case that cannot run a failure: set it once all parts
// are given, so that none is lost again.
//
// Package conformance/link has the link: a TCP proxy, and a gate for embedded
// stores that have no network. Without OpenLink the suite cuts drivers off
// between core and driver. That is a crash only to a store whose leases end by
// themselves; a driver with sessions or heartbeats goes on sending those, and
// has to give OpenLink.
//
// # A store without a network
//
// The processes of an embedded store (a file, shared memory) die too, and what
// they leave is what the cases with a link are about: give OpenLink with a
// link.Gate, through which the driver's accesses to the store pass in its tests.
// Server is then whatever makes every access fail and keeps what was stored, and
// the store's clock is the machine's (D10). A store that lives in the memory of one
// process ends with its tickets: leave OpenLink and Server nil, and the last line
// of the run says truthfully what is not proved of it.
//
// # What it proves
//
// Each case is a sub-test topic/name, and logs the rules that it proves: D1 to
// D20 are the sentences of package driver, §5.1 to §5.10 the chapters below.
//
//   - exclusion (§5.1): who holds at once is what the grant rule allows, at every instant.
//   - fairness (§5.2): grants follow the queue; nobody jumps it, nobody polls, and a refused try is never seen in it.
//   - expiry (§5.3): leases end when they should, of the living and the dead, and not before.
//   - ownership (§5.4): only a ticket's ID moves it; requests may come twice, late, or from strangers.
//   - reentry (§5.5): handles on one ticket, and what does not re-enter.
//   - fencing (§5.6): tokens grow through everything that can happen to a name.
//   - loss (§5.7): a holder knows before the next is granted; breaks are told.
//   - cancellation (§5.8): an Acquire that fails at any stage leaves an empty queue.
//   - leaks (§5.8): no key and no goroutine stays behind, of what was released and of what expired.
//   - names, options, errors, close, inspect (§5.9): what their names say.
//   - outage (§5.9): the store down or stalled, at the start, while held, while waited for, and back.
//   - history (§5.10): random runs, with cuts, crashes and kills, checked by
//     porcupine against a model of the queue.
//
// # Time
//
// Upper bounds are those that the driver states ([driver.Bounder]) and those
// of the contract, plus one second for a loaded machine; a failure says which.
// What that second would hide is held to its own number: Bounds.Crash is never
// less than the TTL, and no lease ends before it (D10); hand-offs take 100 ms
// (D13), returns 50 ms after the end of a context (D16), and Close 100 ms for a
// store that does not answer (D17), of several measurements most, in one attempt
// of three. D18's minute is waited for: with Keys, a driver that is slow to remove
// what expired takes so long.
//
// Leases are of a second where the store can give that. A few cases run at a
// time; the ones that break the store, measure, or count what others change, run
// alone at the end. A driver that touches no network can set Bubble, and no time
// passes at all. With -short random cases repeat less.
//
// # Who proves the suite
//
// Cases return errors rather than failing a testing.T, so that they can be run
// on drivers that are broken on purpose: some ninety of them stand in this
// package's tests, and each case must notice at least one.
package conformance

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
// that are opened separately and stand for several processes, and at the seam
// where the rule is about the seam. All its lock names are random, so that it
// can share a store with other tests.
package conformance

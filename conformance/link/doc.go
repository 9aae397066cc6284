// Package link gives the conformance suite a way to a store that can fail: for
// Harness.OpenLink.
//
// # A store with a network
//
// [Proxy] is a TCP proxy. Open the driver on its address:
//
//	OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
//		p := link.NewProxy(t, "127.0.0.1:5432")
//		d, err := mystore.Dial(ctx, p.Addr())
//		return d, p, err
//	},
//
// A client that learns of other addresses from the store (members of a cluster,
// replicas) goes around the proxy: announce the proxies' addresses, or switch
// that off. A client that uses TLS verifies the name of the store: give it the
// name, as the proxy has another address. A driver on several addresses needs a
// proxy for each; a type of your own that calls Cut, Heal and DropReplies of all
// of them is the Link.
//
// # A store without a network
//
// An embedded store has no connection that could be cut, but its processes die
// all the same: what a cut shows is what happens to the tickets of a process
// that has stopped sending requests. [Gate] is for those. In its tests the driver
// passes every access to the store through a gate of its own, the heartbeats of
// waiters included:
//
//	OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
//		g := link.NewGate()
//		d, err := mystore.OpenFile(path, mystore.Through(g.Pass))
//		return d, g, err
//	},
//
// A hook of that kind is one function in the driver: func(ctx, access func()
// error) error, which without a test calls access. A store whose tickets cannot
// outlive the process that took them, such as a map in its memory, has nothing to
// show here: leave OpenLink nil, and the suite says what it has not proved.
package link

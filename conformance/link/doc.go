// Package link has connections to a store that can fail, for Harness.OpenLink of
// the conformance suite.
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
// replicas) bypasses the proxy: announce the proxies' addresses, or switch that
// off. A client that uses TLS verifies the name of the store: configure the name,
// since the proxy has another address. A driver that uses several addresses needs
// a proxy for each; [Proxies] makes one Link of them.
//
// # A store without a network
//
// An embedded store has no connection that could be cut, but its processes can
// die: a cut shows what happens to the tickets of a process that has stopped
// sending requests. Use an [Interceptor]. In its tests the driver passes every
// access to the store through an Interceptor of its own, including the heartbeats
// of waiters:
//
//	OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
//		i := link.NewInterceptor()
//		d, err := mystore.OpenFile(path, mystore.WithInterceptor(i.Intercept))
//		return d, i, err
//	},
//
// Such a hook is one function in the driver, func(ctx, access func() error) error,
// which outside tests only calls access. A store whose tickets cannot outlive the
// process that took them, such as a map in its memory, has nothing to test here:
// leave OpenLink nil, and the suite says what it has not tested.
package link

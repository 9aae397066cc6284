// Package stripe spreads the load of one lock over several, in two ways.
//
// [Keys] bounds the number of names: it maps very many keys, such as customers, to a
// fixed set of n lock names. The cost is that two keys with the same name exclude
// each other unnecessarily.
//
//	customers, err := stripe.NewKeys("customer", 256)
//	…
//	locker.Do(ctx, l, customers.For(id), fn)
//
// [Segments] divides one hot resource into n parts that can be used at the same time,
// such as a stock of 10,000 items into 10 segments of 1,000. A caller that needs an
// item takes any segment that is free, and tries another one if it is empty.
//
//	stock, err := stripe.NewSegments(l, "stock:tv", 10)
//	…
//	err = stock.Do(ctx, func(ctx context.Context, segment int) error {
//		if left(ctx, segment) == 0 {
//			return stripe.ErrEmpty // try another one
//		}
//		return sell(ctx, segment)
//	})
//	if errors.Is(err, stripe.ErrEmpty) {
//		// sold out: every segment was empty when its lock was held
//	}
//
// # What it promises
//
// Each name is an ordinary lock of the Locker: first come, first served, with its own
// fencing token. A resource compares tokens per segment. Two processes never work on
// one segment at the same time, as far as a lock alone can promise that (see package
// locker on leases and fencing).
//
// # What it does not promise
//
// All programs that share a resource must use the same n. With another n a key has
// another name, so stop the old programs before you change it.
//
// The segments as a whole are not first come, first served: each has its own queue, and
// a newcomer may find a free segment while others wait for another one. They find a free
// one soon, see [Segments.Acquire]. If Do reports that all segments are empty, each was
// empty when Do tried it, but not all at the same time. To check all at once, hold all
// of them with locker.AcquireAll and [Segments.Names].
package stripe

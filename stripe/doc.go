// Package stripe spreads the load of one lock over several, in two ways.
//
// [Keys] bounds the number of names: a lock for each of very many keys, such as
// customers, from a fixed set of n names. Two keys with the same name
// exclude each other without need, and that is all it costs.
//
//	customers, err := stripe.NewKeys("customer", 256)
//	…
//	locker.Do(ctx, l, customers.For(id), fn)
//
// [Segments] cuts one hot resource in n parts that can be worked on at the same
// time, such as a stock of 10,000 pieces in 10 segments of 1,000: whoever needs a
// piece takes whichever segment is free, and goes on to another one if that is
// empty.
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
// Each name is a lock like every other of the Locker, first come, first
// served, with its own fencing token: a resource compares tokens per segment. No
// segment is worked on by two at a time, as far as a lock alone can promise that
// (see package locker on leases and fencing).
//
// # What it does not promise
//
// All who share a resource use the same n. A program with another n excludes
// those of the old one in no useful way, since a key has another name then: stop
// the old ones first.
//
// Segments are not first come, first served as a whole: each has a queue of its
// own, and a newcomer may find a free one while others wait elsewhere; they
// find it soon, see [Segments.Acquire]. That the segments are empty was true of
// each when Do looked at it, not of all at one time; who needs that takes
// them all, with locker.AcquireAll and [Segments.Names].
package stripe

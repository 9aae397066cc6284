package stripe_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/stripe"
)

// A stock in four segments: an order takes a piece from any segment that is free and
// not empty.
func ExampleSegments_Do() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	stock := [4]int{0, 0, 2, 1} // in reality a row of a database each

	tv, err := stripe.NewSegments(l, "stock:tv", len(stock))
	if err != nil {
		fmt.Println(err)
	}
	sell := func() error {
		return tv.Do(ctx, func(_ context.Context, i int) error {
			if stock[i] == 0 {
				return stripe.ErrEmpty
			}
			stock[i]--
			return nil
		})
	}
	for err = sell(); err == nil; err = sell() {
		fmt.Println("sold")
	}
	fmt.Println("sold out:", errors.Is(err, stripe.ErrEmpty), stock)
	// Output:
	// sold
	// sold
	// sold
	// sold out: true [0 0 0 0]
}

// A segment by hand: which one was granted is in Index.
func ExampleSegments_Acquire() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	tv, err := stripe.NewSegments(l, "stock:tv", 2)
	if err != nil {
		fmt.Println(err)
	}
	a, _ := tv.Acquire(ctx)
	b, _ := tv.Acquire(ctx)
	_, err = tv.TryAcquire(ctx)
	fmt.Println(a.Index != b.Index, errors.Is(err, locker.ErrNotAcquired))

	b.Release(ctx)
	c, _ := tv.Acquire(ctx) // the one that was used last
	fmt.Println(c.Index == b.Index, c.Token() > b.Token())
	// Output:
	// true true
	// true true
}

// A lock for each of many customers, from 256 names.
func ExampleKeys() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	customers, err := stripe.NewKeys("customer", 256)
	if err != nil {
		fmt.Println(err)
	}
	locker.Do(ctx, l, customers.For("alice"), func(context.Context) error {
		fmt.Println("alice's account is ours")
		return nil
	})
	both, err := locker.AcquireAll(ctx, l, customers.All("alice", "bob"))
	fmt.Println(len(both.Locks()), err)
	// Output:
	// alice's account is ours
	// 2 <nil>
}

package compose_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver/memory"
)

// A program of the second step of a migration holds both stores, so that programs on
// either of them wait for it.
func ExampleAll() {
	ctx := context.Background()
	old, next := memory.New(), memory.New()
	onOld, onNext := locker.New(old.Join()), locker.New(next.Join())
	both := locker.New(compose.All(old, next).Authority(0))
	defer onOld.Close()
	defer onNext.Close()
	defer both.Close()

	lock, err := both.Acquire(ctx, "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err1 := onOld.TryAcquire(ctx, "invoices")
	_, err2 := onNext.TryAcquire(ctx, "invoices")
	fmt.Println(errors.Is(err1, locker.ErrNotAcquired), errors.Is(err2, locker.ErrNotAcquired))
	fmt.Println(lock.Release(ctx))
	// Output:
	// true true
	// <nil>
}

func ExampleAll_url() {
	ctx := context.Background()
	l, err := locker.Open(ctx, "all://(memory://old)(tokenbase://(memory://new)?n=1000000)?authority=0&ttl=10s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	err = locker.Do(ctx, l, "invoices", func(context.Context) error {
		fmt.Println("held on both")
		return nil
	})
	fmt.Println(err)
	// Output:
	// held on both
	// <nil>
}

// While the primary is down the secondary grants, and the program is notified.
func ExampleFallback() {
	ctx := context.Background()
	primary := down{memory.New()} // stands for a Redis that is down
	l := locker.New(compose.Fallback(primary, memory.New()), locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Degraded != nil {
			fmt.Printf("degraded: %s: %v\n", e.Name, e.Degraded)
		}
	}))
	defer l.Close()

	err := locker.Do(ctx, l, "report", func(context.Context) error {
		fmt.Println("done once, or twice in a partition")
		return nil
	})
	fmt.Println(err)
	// Output:
	// degraded: report: memory: connection refused
	// done once, or twice in a partition
	// <nil>
}

func ExampleTokenBase() {
	ctx := context.Background()
	l := locker.New(compose.TokenBase(memory.New(), 1<<52))
	defer l.Close()
	lock, err := l.Acquire(ctx, "invoices")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lock.Token() > 1<<52)
	fmt.Println(lock.Release(ctx))
	// Output:
	// true
	// <nil>
}

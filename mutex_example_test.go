package locker_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

func ExampleNewMutex() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()

	stock := locker.NewMutex(l, "stock:42")
	held, err := stock.Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer held.Release(ctx)

	_, err = stock.TryLock(ctx)
	fmt.Println("somebody else has it:", errors.Is(err, locker.ErrNotAcquired))
	// Output: somebody else has it: true
}

func ExampleMutex_Do() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()

	stock := locker.NewMutex(l, "stock:42")
	left := 1
	for range 2 {
		err := stock.Do(ctx, func(context.Context) error {
			if left == 0 {
				return errors.New("sold out")
			}
			left--
			return nil
		})
		fmt.Println(left, err)
	}
	// Output:
	// 0 <nil>
	// 0 sold out
}

func ExampleNewRWMutex() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()

	document := locker.NewRWMutex(l, "document:7")
	reader, err := document.RLock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	another, err := document.TryRLock(ctx)
	fmt.Println("another reader:", err)
	_, err = document.TryLock(ctx)
	fmt.Println("a writer has to wait:", errors.Is(err, locker.ErrNotAcquired))
	_, _ = another.Release(ctx), reader.Release(ctx)
	// Output:
	// another reader: <nil>
	// a writer has to wait: true
}

func ExampleNewSemaphore() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()

	calls := locker.NewSemaphore(l, "api.example.com", 2)
	for range 3 {
		_, err := calls.TryAcquire(ctx)
		fmt.Println(err == nil)
	}
	// Output:
	// true
	// true
	// false
}

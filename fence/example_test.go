package fence_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/fence"
)

// A holder that was paused after its read is refused when it writes.
func ExampleGuard_Do() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	var (
		guard fence.Guard
		items = 10
	)
	read := func(lock *locker.Lock) (n int, err error) {
		err = guard.Do(lock, func() error { n = items; return nil })
		return n, err
	}
	write := func(lock *locker.Lock, n int) error {
		return guard.Do(lock, func() error { items = n; return nil })
	}

	late, _ := l.Acquire(ctx, "stock")
	seenLate, _ := read(late)
	_ = l.Break(ctx, "stock", late.Token()) // paused, until its lease has ended

	next, _ := l.Acquire(ctx, "stock")
	seenNext, _ := read(next)

	fmt.Println(errors.Is(write(late, seenLate-1), fence.ErrStale))
	fmt.Println(write(next, seenNext-1), items)
	// Output:
	// true
	// <nil> 9
}

// The wrong way: a read outside of Do is not protected, though every write compares
// its token.
func ExampleGuard_Do_wrong() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	var (
		guard fence.Guard
		items = 10
	)
	write := func(lock *locker.Lock, n int) error {
		return guard.Do(lock, func() error { items = n; return nil })
	}

	late, _ := l.Acquire(ctx, "stock")
	seenLate := items
	_ = l.Break(ctx, "stock", late.Token()) // paused, until its lease has ended

	next, _ := l.Acquire(ctx, "stock")
	seenNext := items

	fmt.Println(write(late, seenLate-1), write(next, seenNext-1))
	fmt.Println("sold 2 of 10, left", items)
	// Output:
	// <nil> <nil>
	// sold 2 of 10, left 9
}

// A resource that is another process gets the name and the token with the request.
func ExampleToken() {
	var guard fence.Guard
	serve := func(name string, token uint64) {
		err := guard.Do(fence.Token(name, token), func() error {
			fmt.Println("done with token", token)
			return nil
		})
		if errors.Is(err, fence.ErrStale) {
			fmt.Println(err)
		}
	}
	serve("stock", 33)
	serve("stock", 34)
	serve("stock", 33)
	serve("returns", 12) // another name has a fence of its own
	// Output:
	// done with token 33
	// done with token 34
	// fence: stale fencing token 33 of "stock": token 34 was seen
	// done with token 12
}

// Each of several locks is fenced by its own name and token.
func ExampleMembers() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	lock, _ := locker.AcquireAll(ctx, l, []string{"account:9", "account:4"})
	defer lock.Release(ctx)
	members, err := fence.Members(lock)
	for _, k := range members {
		fmt.Println(k.Name(), k.Token() > 0)
	}
	fmt.Println(err)
	// Output:
	// account:4 true
	// account:9 true
	// <nil>
}

// Hello holds a lock for as long as its work takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/memory" // or driver/redis, driver/postgres, …
)

func main() {
	if err := run(context.Background(), "memory://"); err != nil { // or redis://localhost:6379, …
		fmt.Fprintln(os.Stderr, "hello:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	l, err := locker.Open(ctx, url) // once, for the whole program
	if err != nil {
		return err
	}
	defer l.Close()

	lock, err := l.Acquire(ctx, "order:42", locker.WithWait(5*time.Second))
	switch {
	case errors.Is(err, locker.ErrUnavailable): // first: a wait that an outage ends is both
		return fmt.Errorf("the store does not answer: %w", err)
	case errors.Is(err, locker.ErrNotAcquired):
		return fmt.Errorf("another process has held the order for 5 s: %w", err)
	case err != nil:
		return err
	}
	defer lock.Release(ctx)

	err = ship(lock.Context(ctx), 42, lock.Token()) // the context ends if the lock is lost
	if errors.Is(lock.Err(), locker.ErrLost) {
		return fmt.Errorf("another process may have shipped it, too: %w", lock.Err())
	}
	return err
}

// ship stands for the work. The token lets its database refuse a holder that is late.
func ship(ctx context.Context, order int, token uint64) error {
	fmt.Println("shipping order", order, "with the fencing token", token)
	return ctx.Err()
}

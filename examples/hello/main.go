// Hello holds a lock for as long as its work takes.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/memory" // or driver/redis, driver/postgres, …
)

func main() {
	if err := run(context.Background(), "memory://"); err != nil { // or redis://localhost:6379, …
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) (err error) {
	l, err := locker.Open(ctx, url) // once, for the whole program
	if err != nil {
		return err
	}
	defer l.Close()
	lock, err := l.Acquire(ctx, "order:42") // waits while another process has it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release(ctx)) }() // ErrLost: the lock has ended before the work
	fmt.Println("shipping order 42 with the fencing token", lock.Token())
	return nil
}

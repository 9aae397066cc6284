// Hello holds a lock for as long as its work takes.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/memory" // or driver/redis, driver/postgres, …
)

func main() {
	ctx := context.Background()
	l, err := locker.Open(ctx, "memory://") // once, for the whole program; or redis://localhost:6379, …
	if err != nil {
		log.Panic(err)
	}
	defer l.Close()
	lock, err := l.Acquire(ctx, "order:42") // waits while another process has it
	if err != nil {
		log.Panic(err)
	}
	defer lock.Release(ctx)
	fmt.Println("shipping order 42 with the fencing token", lock.Token())
}

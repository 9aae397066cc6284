package redlock_test

import (
	"context"
	"fmt"
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redlock"
)

func Example() {
	var nodes []redis.UniversalClient
	for _, addr := range []string{"redis-1:6379", "redis-2:6379", "redis-3:6379", "redis-4:6379", "redis-5:6379"} {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr}))
	}
	d, err := redlock.New(nodes)
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	ctx := context.Background()
	err = locker.Do(ctx, l, "orders/42", func(ctx context.Context) error {
		// ctx ends when the lock is lost.
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
}

func Example_url() {
	l, err := locker.Open(context.Background(), "redlock://redis-1,redis-2,redis-3/0?timeout=200ms")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	fmt.Println("three nodes, of which one may fail")
}

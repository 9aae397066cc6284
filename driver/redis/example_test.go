package redis_test

import (
	"context"
	"fmt"
	"log"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redis"
)

// A client that the program has already serves for locks too.
func Example() {
	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	defer client.Close()

	d, err := redis.New(client)
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	ctx := context.Background()
	lock, err := l.Acquire(ctx, "invoices/2024", locker.WithTTL(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("token", lock.Token())
	if err := lock.Release(ctx); err != nil {
		log.Print(err)
	}
}

// Behind Sentinel a lock survives a failover when a replica has it.
func ExampleWithReplicas() {
	client := goredis.NewFailoverClient(&goredis.FailoverOptions{
		MasterName:    "mymaster",
		SentinelAddrs: []string{"sentinel-1:26379", "sentinel-2:26379", "sentinel-3:26379"},
	})
	defer client.Close()

	d, err := redis.New(client, redis.WithReplicas(1, 500*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(locker.New(d).Close())
}

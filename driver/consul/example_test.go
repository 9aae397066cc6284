package consul_test

import (
	"context"
	"fmt"
	"log"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/consul"
)

func Example() {
	client, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		log.Fatal(err)
	}
	d, err := consul.New(client, consul.WithPrefix("team/locker"))
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	err = locker.Do(context.Background(), l, "nightly-report", func(ctx context.Context) error {
		fmt.Println("one process at a time")
		return ctx.Err()
	})
	if err != nil {
		log.Print(err)
	}
}

// By URL; the driver is imported for its side effect.
func Example_url() {
	ctx := context.Background()
	l, err := locker.Open(ctx, "consul://127.0.0.1:8500?prefix=team/locker")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	lock, err := l.Acquire(ctx, "order:42")
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println("fencing token", lock.Token())
	if err := lock.Release(ctx); err != nil {
		log.Print(err)
	}
}

package memcached_test

import (
	"context"
	"fmt"
	"log"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memcached"
)

func Example() {
	d, err := memcached.New([]string{"cache1:11211", "cache2:11211"})
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	// A server that is restarted forgets its locks, so it must do no harm to make the report twice.
	err = locker.Do(context.Background(), l, "reports/daily", func(ctx context.Context) error {
		return makeReport(ctx)
	})
	if err != nil {
		log.Print(err)
	}
}

func Example_url() {
	l, err := locker.Open(context.Background(), "memcached://cache1:11211,cache2:11211?timeout=500ms")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Close())
	// Output: <nil>
}

func makeReport(ctx context.Context) error { return ctx.Err() }

package nats_test

import (
	"context"
	"fmt"
	"log"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/nats"
)

func ExampleNew() {
	nc, err := natsgo.Connect("nats://n1,nats://n2,nats://n3",
		natsgo.PingInterval(time.Second), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()
	d, err := nats.New(nc, nats.WithBucket("billing-locks"), nats.WithReplicas(3))
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close() // closes d, and not the connection

	err = locker.Do(context.Background(), l, "reports/daily", func(ctx context.Context) error {
		return makeReport(ctx)
	})
	if err != nil {
		log.Print(err)
	}
}

func Example_url() {
	l, err := locker.Open(context.Background(), "nats://n1,n2,n3?bucket=billing-locks&timeout=1s")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Close())
	// Output: <nil>
}

func makeReport(ctx context.Context) error { return ctx.Err() }

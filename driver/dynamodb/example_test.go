package dynamodb_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/config"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/dynamodb"
)

// The driver takes a client that the program already has.
func Example() {
	ctx := context.Background()
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		log.Fatal(err)
	}
	d, err := dynamodb.New(sdk.NewFromConfig(cfg), "locks")
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	err = locker.Do(ctx, l, "reports/daily", func(ctx context.Context) error {
		return makeReport(ctx)
	})
	if err != nil {
		log.Print(err)
	}
}

func Example_url() {
	l, err := locker.Open(context.Background(), "dynamodb://locks?region=eu-west-1&timeout=500ms")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Close())
	// Output: <nil>
}

func makeReport(ctx context.Context) error { return ctx.Err() }

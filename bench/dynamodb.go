package main

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	"cirello.io/dynamolock/v2"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	sdk "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

var dynamodbStore = store{name: "dynamodb", title: "DynamoDB Local, with its data in a file", subjects: func(tb *bed) []subject {
	addr := testbed.DynamoDB(tb, testbed.Faults()).Addr() // with its data in a file
	d, err := dynamodb.New(dynamodbClient(addr, new(atomic.Int64)), "locker", dynamodb.WithCreate())
	tb.check(err)
	tb.check(d.Ping(context.Background()))
	tb.check(d.Close())
	return []subject{
		{name: "raw conditional put + delete", uncontended: true, open: func(_ *bed, n *atomic.Int64) client {
			return dynamodbPut{dynamodbClient(addr, n)}
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, most: 16, open: func(tb *bed, n *atomic.Int64) client {
			d, err := dynamodb.New(dynamodbClient(addr, n), "locker")
			tb.check(err)
			return ours{locker.New(d)}
		}},
		{name: "conditional put, tried again after 5 to 15 ms", uncontended: true, contended: true, most: 16, open: func(_ *bed, n *atomic.Int64) client {
			return polling{dynamodbPut{dynamodbClient(addr, n)}, func(err error) bool { return errors.As(err, new(*types.ConditionalCheckFailedException)) }}
		}},
		// Its own interval is a second. One that waits looks at the item before each try.
		{name: "dynamolock, tried again after 10 ms", uncontended: true, contended: true, most: 16, open: func(tb *bed, n *atomic.Int64) client {
			c, err := dynamolock.New(dynamodbClient(addr, n), "locker", dynamolock.WithPartitionKeyName("id"),
				dynamolock.WithLeaseDuration(leaseTTL), dynamolock.WithHeartbeatPeriod(leaseTTL/3))
			tb.check(err)
			return dynamodbLock{c}
		}},
	}
}}

func dynamodbClient(addr string, n *atomic.Int64) *sdk.Client {
	t := &http.Transport{MaxIdleConnsPerHost: 64}
	return sdk.New(sdk.Options{
		Region: "eu-west-1", Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		BaseEndpoint: aws.String("http://" + addr), HTTPClient: &http.Client{Transport: countedTransport{t, n}},
	})
}

// dynamodbPut is the recipe: an item that is put if there is none, and deleted.
type dynamodbPut struct{ c *sdk.Client }

func (p dynamodbPut) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	key := map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "raw:" + name}}
	_, err := p.c.PutItem(ctx, &sdk.PutItemInput{
		TableName: aws.String("locker"), Item: key, ConditionExpression: aws.String("attribute_not_exists(id)"),
	})
	return func(ctx context.Context) error {
		_, err := p.c.DeleteItem(ctx, &sdk.DeleteItemInput{TableName: aws.String("locker"), Key: key})
		return err
	}, err
}

func (p dynamodbPut) close() {}

// dynamodbLock is the library for Go that follows Amazon's lock client for Java.
type dynamodbLock struct{ c *dynamolock.Client }

func (d dynamodbLock) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	l, err := d.c.AcquireLockWithContext(ctx, "dynamolock:"+name, dynamolock.WithDeleteLockOnRelease(),
		dynamolock.WithRefreshPeriod(10*time.Millisecond), dynamolock.WithAdditionalTimeToWaitForLock(time.Hour))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := d.c.ReleaseLockWithContext(ctx, l)
		return err
	}, nil
}

func (d dynamodbLock) close() { _ = d.c.CloseWithContext(context.Background()) }

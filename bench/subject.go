package main

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// A store is what the subjects of one table run on.
type store struct {
	name     string
	title    string
	subjects func(tb *bed) []subject // starts the server
}

// stores are the tables, in order.
var stores = []store{redisStore, redlockStore, etcdStore, zookeeperStore, consulStore, postgresStore, mysqlStore, natsStore, memcachedStore, dynamodbStore, sqliteStore}

// A subject is one way to lock.
type subject struct {
	name string
	// open makes a client with connections of its own. It adds what it sends
	// to count, if it can tell.
	open func(tb *bed, count *atomic.Int64) client
	// What it takes part in.
	uncontended, contended, shared, held, waiting bool
	// most is the largest number of contenders it is asked to bear; 0: any.
	most int
}

// A client acquires and releases.
type client interface {
	acquire(ctx context.Context, name string) (release func(context.Context) error, err error)
	close()
}

// prepared is a client that has to make a name ready before it is used.
type prepared interface {
	prepare(ctx context.Context, name string) error
}

// leaseTTL is what every subject asks for.
const leaseTTL = 10 * time.Second

// ours is this library on any store.
type ours struct{ l *locker.Client }

func (o ours) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	k, err := o.l.Acquire(ctx, name, locker.WithTTL(leaseTTL))
	if err != nil {
		return nil, err
	}
	return k.Release, nil
}

func (o ours) close() { _ = o.l.Close() } // what it cannot release ends by itself

// closing is ours, with the connection that it was given.
type closing struct {
	ours
	conn func() error
}

func (c closing) close() {
	c.ours.close()
	_ = c.conn()
}

// polling is a client that tries again after 5 to 15 ms while somebody else has the name.
type polling struct {
	client
	taken func(err error) bool
}

func (p polling) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		release, err := p.client.acquire(ctx, name)
		if err == nil || !p.taken(err) {
			return release, err
		}
		if !retry.Sleep(ctx, 5*time.Millisecond+rand.N(10*time.Millisecond), nil) {
			return nil, ctx.Err()
		}
	}
}

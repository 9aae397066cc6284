package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/nats"
	"github.com/lockerproject/locker/internal/testbed"
)

var natsStore = store{name: "nats", title: "nats, one server, JetStream without fsync", subjects: func(tb *bed) []subject {
	addr := testbed.Nats(tb).Addr()
	return []subject{
		{name: "raw KV create + delete", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return natsKV(tb, addr, n, false)
		}},
		// Not so many waiters that a message would be too small for their queue.
		{name: "locker", uncontended: true, contended: true, held: true, open: func(tb *bed, n *atomic.Int64) client {
			nc := natsConn(tb, addr, n)
			d, err := nats.New(nc)
			tb.check(err)
			return closing{ours{locker.New(d)}, func() error { nc.Close(); return nil }}
		}},
		{name: "KV create, tried again after 5 to 15 ms", uncontended: true, contended: true, most: 16, open: func(tb *bed, n *atomic.Int64) client {
			return natsKV(tb, addr, n, true)
		}},
	}
}}

// natsConn makes a connection that counts the requests.
func natsConn(tb *bed, addr string, n *atomic.Int64) *natsgo.Conn {
	nc, err := natsgo.Connect("nats://"+addr, natsgo.SetCustomDialer(natsDialer{n}))
	tb.check(err)
	return nc
}

type natsDialer struct{ n *atomic.Int64 }

// Dial implements natsgo.CustomDialer.
func (d natsDialer) Dial(network, addr string) (net.Conn, error) {
	c, err := net.Dial(network, addr)
	return &countedMessages{c, d.n}, err
}

type countedMessages struct {
	net.Conn

	n *atomic.Int64
}

// Write counts the lines that are messages: no value of the benchmark looks like one.
func (c *countedMessages) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		if bytes.HasPrefix(line, []byte("PUB ")) || bytes.HasPrefix(line, []byte("HPUB ")) {
			c.n.Add(1)
		}
	}
	return c.Conn.Write(b)
}

// kvLock is the recipe: create with a time to live, and delete.
type kvLock struct {
	nc    *natsgo.Conn
	kv    jetstream.KeyValue
	polls bool
}

func natsKV(tb *bed, addr string, n *atomic.Int64, polls bool) *kvLock {
	nc := natsConn(tb, addr, n)
	js, err := jetstream.New(nc)
	tb.check(err)
	kv, err := js.CreateOrUpdateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "recipe", LimitMarkerTTL: time.Minute})
	tb.check(err)
	return &kvLock{nc, kv, polls}
}

func (k *kvLock) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		revision, err := k.kv.Create(ctx, name, []byte("held"), jetstream.KeyTTL(leaseTTL))
		if err == nil || !k.polls || !errors.Is(err, jetstream.ErrKeyExists) {
			return func(ctx context.Context) error { return k.kv.Delete(ctx, name, jetstream.LastRevision(revision)) }, err
		}
		select {
		case <-time.After(5*time.Millisecond + rand.N(10*time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (k *kvLock) close() { k.nc.Close() }

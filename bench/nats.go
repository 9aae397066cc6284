package main

import (
	"context"
	"errors"
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
			return natsKV(tb, addr, n)
		}},
		// Not so many waiters that a message would be too small for their queue; and 256 clients that come at once take
		// longer to queue, on a busy machine, than the core waits for an answer.
		{name: "locker", uncontended: true, contended: true, shared: true, most: 16, held: true, open: func(tb *bed, n *atomic.Int64) client {
			nc := natsConn(tb, addr, n)
			d, err := nats.New(nc)
			tb.check(err)
			return closing{ours{locker.New(d)}, func() error { nc.Close(); return nil }}
		}},
		{name: "KV create, watched until it is deleted", contended: true, most: 16, open: func(tb *bed, n *atomic.Int64) client {
			return natsKV(tb, addr, n)
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
	return dial(context.Background(), network, addr, d.n, lines("PUB ", "HPUB "))
}

// kvLock is the recipe: create with a time to live, and delete; who finds the key watches it until it is deleted, and
// tries again, together with all others.
type kvLock struct {
	nc *natsgo.Conn
	kv jetstream.KeyValue
}

func natsKV(tb *bed, addr string, n *atomic.Int64) *kvLock {
	nc := natsConn(tb, addr, n)
	js, err := jetstream.New(nc)
	tb.check(err)
	kv, err := js.CreateOrUpdateKeyValue(context.Background(), jetstream.KeyValueConfig{Bucket: "recipe", LimitMarkerTTL: time.Minute})
	tb.check(err)
	return &kvLock{nc, kv}
}

func (k *kvLock) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	release, err := k.try(ctx, name)
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return release, err
	}
	w, err := k.kv.Watch(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = w.Stop() }()
	for {
		select {
		case e := <-w.Updates(): // nil after the present one
			if e != nil && e.Operation() == jetstream.KeyValuePut {
				continue
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if release, err = k.try(ctx, name); !errors.Is(err, jetstream.ErrKeyExists) {
			return release, err
		}
	}
}

// try creates the key, if it is not there.
func (k *kvLock) try(ctx context.Context, name string) (release func(context.Context) error, err error) {
	revision, err := k.kv.Create(ctx, name, []byte("held"), jetstream.KeyTTL(leaseTTL))
	return func(ctx context.Context) error { return k.kv.Delete(ctx, name, jetstream.LastRevision(revision)) }, err
}

func (k *kvLock) close() { k.nc.Close() }

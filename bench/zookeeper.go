package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	lockerzk "github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

var zookeeperStore = store{name: "zookeeper", title: "zookeeper, one server, fsync on", subjects: func(tb *bed) []subject {
	addr := testbed.Zookeeper(tb, testbed.Durable()).Addr()
	return []subject{
		{name: "raw create, children, delete", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			c, _ := zkConn(tb, addr, n)
			return &zkRaw{c: c}
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
			c, events := zkConn(tb, addr, n)
			d, err := lockerzk.New(c, events)
			tb.check(err)
			return closing{ours{locker.New(d)}, func() error { c.Close(); return nil }}
		}},
		{name: "zk.Lock", uncontended: true, contended: true, shared: true, open: func(tb *bed, n *atomic.Int64) client {
			c, _ := zkConn(tb, addr, n)
			return &zkLock{c: c}
		}},
	}
}}

func zkConn(tb *bed, addr string, n *atomic.Int64) (*zk.Conn, <-chan zk.Event) {
	c, events, err := zk.Connect([]string{addr}, leaseTTL, zk.WithLogInfo(false), zk.WithLogger(quiet{}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(context.Background(), timeout)
			defer cancel()
			return dial(ctx, network, address, n, writes) // the client sends each request with one
		}))
	tb.check(err)
	_, _, err = c.Exists("/")
	tb.check(err)
	return c, events
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

type zkRaw struct {
	c    *zk.Conn
	made sync.Map
}

func (r *zkRaw) acquire(_ context.Context, name string) (func(context.Context) error, error) {
	parent := "/raw-" + name
	if _, done := r.made.LoadOrStore(parent, true); !done {
		if _, err := r.c.Create(parent, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
			return nil, err
		}
	}
	path, err := r.c.Create(parent+"/t-", nil, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	if err != nil {
		return nil, err
	}
	children, _, err := r.c.Children(parent)
	if err == nil && len(children) != 1 {
		err = fmt.Errorf("%s is taken", name)
	}
	return func(context.Context) error { return r.c.Delete(path, -1) }, err
}

func (r *zkRaw) close() { r.c.Close() }

type zkLock struct{ c *zk.Conn }

func (r *zkLock) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	l := zk.NewLock(r.c, "/lock-"+name, zk.WorldACL(zk.PermAll))
	if err := l.LockWithData(nil); err != nil { // it takes no context
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, errors.Join(ctx.Err(), l.Unlock())
	}
	return func(context.Context) error { return l.Unlock() }, nil
}

func (r *zkLock) close() { r.c.Close() }

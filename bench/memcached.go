package main

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

var memcachedStore = store{name: "memcached", title: "memcached, one server", subjects: func(tb *bed) []subject {
	addr := testbed.Memcached(tb).Addr()
	return []subject{
		{name: "raw add + delete", uncontended: true, open: func(_ *bed, n *atomic.Int64) client {
			return memcachedAdd{memcachedClient(addr, n)}
		}},
		// Not so many waiters that an item would be too small for their queue.
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, open: func(tb *bed, n *atomic.Int64) client {
			d, err := memcached.New([]string{addr}, memcached.WithDialer(countCommands(n)))
			tb.check(err)
			return ours{locker.New(d)}
		}},
		{name: "add, tried again after 5 to 15 ms", uncontended: true, contended: true, most: 16, open: func(_ *bed, n *atomic.Int64) client {
			return polling{memcachedAdd{memcachedClient(addr, n)}, func(err error) bool { return errors.Is(err, memcache.ErrNotStored) }}
		}},
	}
}}

// countCommands makes connections that count what is sent.
func countCommands(n *atomic.Int64) memcached.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		return dial(ctx, network, addr, n, memcachedCommands)
	}
}

var memcachedCommands = lines("mg ", "add ", "cas ", "replace ", "delete ")

func memcachedClient(addr string, n *atomic.Int64) *memcache.Client {
	c := memcache.New(addr)
	c.DialContext = countCommands(n)
	c.MaxIdleConns, c.Timeout = 32, 10*time.Second
	return c
}

// memcachedAdd is the recipe: add with a time to live, and delete.
type memcachedAdd struct{ c *memcache.Client }

func (m memcachedAdd) acquire(_ context.Context, name string) (func(context.Context) error, error) {
	err := m.c.Add(&memcache.Item{Key: name, Value: []byte("held"), Expiration: int32(leaseTTL / time.Second)})
	return func(context.Context) error { return m.c.Delete(name) }, err
}

func (m memcachedAdd) close() { _ = m.c.Close() }

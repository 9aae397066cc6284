package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
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
			return &memcachedAdd{c: memcachedClient(addr, n)}
		}},
		// Not so many waiters that an item would be too small for their queue.
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, open: func(tb *bed, n *atomic.Int64) client {
			d, err := memcached.New([]string{addr}, memcached.WithDialer(countCommands(n)))
			tb.check(err)
			return ours{locker.New(d)}
		}},
		{name: "add, tried again after 5 to 15 ms", uncontended: true, contended: true, most: 16, open: func(_ *bed, n *atomic.Int64) client {
			return &memcachedAdd{c: memcachedClient(addr, n), polls: true}
		}},
	}
}}

// countCommands makes connections that count what is sent.
func countCommands(n *atomic.Int64) memcached.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &countedCommands{c, n}, err
	}
}

type countedCommands struct {
	net.Conn

	n *atomic.Int64
}

var memcachedCommands = [][]byte{[]byte("mg "), []byte("add "), []byte("cas "), []byte("replace "), []byte("delete ")}

// Write counts the lines that are commands: no value of the benchmark looks like one.
func (c *countedCommands) Write(b []byte) (int, error) {
	for line := range bytes.Lines(b) {
		for _, command := range memcachedCommands {
			if bytes.HasPrefix(line, command) {
				c.n.Add(1)
			}
		}
	}
	return c.Conn.Write(b)
}

func memcachedClient(addr string, n *atomic.Int64) *memcache.Client {
	c := memcache.New(addr)
	c.DialContext = countCommands(n)
	c.MaxIdleConns, c.Timeout = 32, 10*time.Second
	return c
}

// memcachedAdd is the recipe: add with a time to live, and delete.
type memcachedAdd struct {
	c     *memcache.Client
	polls bool
}

func (m *memcachedAdd) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	for {
		err := m.c.Add(&memcache.Item{Key: name, Value: []byte("held"), Expiration: int32(leaseTTL / time.Second)})
		if err == nil || !m.polls || !errors.Is(err, memcache.ErrNotStored) {
			return func(context.Context) error { return m.c.Delete(name) }, err
		}
		select {
		case <-time.After(5*time.Millisecond + rand.N(10*time.Millisecond)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (m *memcachedAdd) close() { _ = m.c.Close() }

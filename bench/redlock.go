package main

import (
	"errors"
	"sync/atomic"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

var redlockStore = store{name: "redlock", title: "redlock, five servers, nothing on disk", subjects: func(tb *bed) []subject {
	addrs := testbed.RedisN(tb, 5).Addrs()
	return []subject{
		{name: "raw on one server", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return &redisRaw{redisConn(tb, addrs[0], n)}
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
			cs := redisConns(tb, addrs, n)
			nodes := make([]redis.UniversalClient, len(cs))
			for i, c := range cs {
				nodes[i] = c
			}
			d, err := redlock.New(nodes)
			tb.check(err)
			return closing{ours{locker.New(d)}, cs.close}
		}},
		{name: "redsync", uncontended: true, contended: true, shared: true, open: func(tb *bed, n *atomic.Int64) client {
			cs := redisConns(tb, addrs, n)
			pools := make([]redsyncredis.Pool, len(cs))
			for i, c := range cs {
				pools[i] = redsyncpool.NewPool(c)
			}
			return &redSyncMany{redSync{nil, redsync.New(pools...)}, cs}
		}},
	}
}}

// conns are the connections to several servers.
type conns []*redis.Client

func redisConns(tb *bed, addrs []string, n *atomic.Int64) conns {
	cs := make(conns, len(addrs))
	for i, addr := range addrs {
		cs[i] = redisConn(tb, addr, n)
	}
	return cs
}

func (cs conns) close() error {
	var errs []error
	for _, c := range cs {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

type redSyncMany struct {
	redSync
	cs conns
}

func (r *redSyncMany) close() { _ = r.cs.close() }

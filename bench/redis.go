package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockerproject/locker"
	lockerredis "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

var redisStore = store{name: "redis", title: "redis, one server, nothing on disk", subjects: func(tb *bed) []subject {
	addr := testbed.Redis(tb).Addr()
	return []subject{
		{name: "raw SET NX PX + compare-and-delete", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return &redisRaw{redisConn(tb, addr, n)}
		}},
		{name: "the same, pipelined", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return pipelined(redisConn(tb, addr, n))
		}},
		{name: "BLPOP/LPUSH (floor, not crash-safe)", contended: true, shared: true, open: func(tb *bed, n *atomic.Int64) client {
			return &redisFloor{redisConn(tb, addr, n)}
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
			c := redisConn(tb, addr, n)
			d, err := lockerredis.New(c)
			tb.check(err)
			return closing{ours{locker.New(d)}, c.Close}
		}},
		{name: "bsm/redislock", uncontended: true, contended: true, shared: true, held: true, open: func(tb *bed, n *atomic.Int64) client {
			c := redisConn(tb, addr, n)
			return &redisLock{c, redislock.New(c)}
		}},
		{name: "redsync", uncontended: true, contended: true, shared: true, open: func(tb *bed, n *atomic.Int64) client {
			c := redisConn(tb, addr, n)
			return &redSync{c, redsync.New(redsyncpool.NewPool(c))}
		}},
	}
}}

func redisConn(tb *bed, addr string, n *atomic.Int64) *redis.Client {
	c := redis.NewClient(&redis.Options{
		Addr: addr, PoolSize: 64, MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dial(ctx, network, addr, n, lines("*")) // a command is an array, and its parts are not; however many share a write
		},
	})
	tb.check(c.Ping(context.Background()).Err())
	return c
}

// redisRaw is what every simple Redis lock does, without a library.
type redisRaw struct{ c *redis.Client }

var compareAndDelete = redis.NewScript(
	`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)

func (r *redisRaw) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	value := fmt.Sprintf("%016x", rand.Uint64())
	ok, err := r.c.SetNX(ctx, name, value, leaseTTL).Result()
	if err == nil && !ok {
		err = fmt.Errorf("%s is taken", name)
	}
	return func(ctx context.Context) error {
		return compareAndDelete.Run(ctx, r.c, []string{name}, value).Err()
	}, err
}

func (r *redisRaw) close() { _ = r.c.Close() }

// redisPipelined is redisRaw whose concurrent callers share round trips: what
// came while two pipelines were under way goes as the next.
type redisPipelined struct {
	c     *redis.Client
	queue chan *redisCall
}

type redisCall struct {
	cmd  redis.Cmder
	done chan struct{}
}

func pipelined(c *redis.Client) *redisPipelined {
	r := &redisPipelined{c: c, queue: make(chan *redisCall, 1024)}
	for range 2 {
		go r.run()
	}
	return r
}

func (r *redisPipelined) run() {
	ctx := context.Background()
	for call := range r.queue {
		batch := r.queued([]*redisCall{call})
		p := r.c.Pipeline()
		for _, call := range batch {
			_ = p.Process(ctx, call.cmd) // each command has its own error
		}
		_, _ = p.Exec(ctx)
		for _, call := range batch {
			close(call.done)
		}
	}
}

func (r *redisPipelined) queued(batch []*redisCall) []*redisCall {
	for {
		select {
		case call := <-r.queue:
			batch = append(batch, call)
		default:
			return batch
		}
	}
}

func (r *redisPipelined) do(cmd redis.Cmder) error {
	call := &redisCall{cmd, make(chan struct{})}
	r.queue <- call
	<-call.done
	return cmd.Err()
}

func (r *redisPipelined) prepare(ctx context.Context, _ string) error {
	return compareAndDelete.Load(ctx, r.c).Err()
}

func (r *redisPipelined) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	value := fmt.Sprintf("%016x", rand.Uint64())
	err := r.do(redis.NewBoolCmd(ctx, "set", name, value, "nx", "px", leaseTTL.Milliseconds()))
	return func(ctx context.Context) error {
		return r.do(redis.NewCmd(ctx, "evalsha", compareAndDelete.Hash(), 1, name, value))
	}, err
}

func (r *redisPipelined) close() {
	close(r.queue)
	_ = r.c.Close()
}

// redisFloor hands one token around: the least that contention can cost. A
// holder that dies takes the token with it.
type redisFloor struct{ c *redis.Client }

func (r *redisFloor) prepare(ctx context.Context, name string) error {
	return r.c.LPush(ctx, name, "token").Err()
}

func (r *redisFloor) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	for ctx.Err() == nil {
		err := r.c.BLPop(ctx, time.Second, name).Err()
		if err == redis.Nil { //nolint:errorlint // go-redis returns it bare
			continue
		}
		return func(ctx context.Context) error { return r.c.LPush(ctx, name, "token").Err() }, err
	}
	return nil, ctx.Err()
}

func (r *redisFloor) close() { _ = r.c.Close() }

type redisLock struct {
	c *redis.Client
	l *redislock.Client
}

func (r *redisLock) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	l, err := r.l.Obtain(ctx, name, leaseTTL, &redislock.Options{
		RetryStrategy: redislock.LinearBackoff(time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	return l.Release, nil
}

func (r *redisLock) close() { _ = r.c.Close() }

type redSync struct {
	c *redis.Client
	s *redsync.Redsync
}

func (r *redSync) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	m := r.s.NewMutex(name, redsync.WithExpiry(leaseTTL), redsync.WithTries(1_000_000),
		redsync.WithRetryDelay(time.Millisecond))
	if err := m.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { _, err := m.UnlockContext(ctx); return err }, nil
}

func (r *redSync) close() { _ = r.c.Close() }

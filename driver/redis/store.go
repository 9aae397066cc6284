package redis

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// How soon a script is run again on a hash slot that is being moved.
const (
	movingFirst = 5 * time.Millisecond
	movingMost  = 100 * time.Millisecond
)

// heartbeatBound is how long a heartbeat waits for its answer. Of two that are sent in the time for which a process is taken for
// alive, one may be lost.
const heartbeatBound = redisqueue.Heartbeat

var errNoAnswer = driver.Unavailable(fmt.Errorf("redis: no answer within %v", heartbeatBound))

// do runs a script. It runs it again while a Cluster is moving the hash slot of its
// keys.
func (d *Driver) do(ctx context.Context, c *redisqueue.Call) (any, error) {
	d.listener.Start() // breaks are notified there, and its error says why there is no connection
	for pause := (retry.Backoff{First: movingFirst, Most: movingMost}); ; {
		v, err := d.pipe.Do(ctx, c)
		if err == nil {
			return v, nil
		}
		if !redisqueue.Moving(err) {
			return nil, d.explain(ctx, err)
		}
		if !retry.Sleep(ctx, pause.Next(), d.life.Done()) {
			return nil, ended(ctx, err)
		}
	}
}

// ended is the error of a request that is not tried again, because ctx or the driver has
// ended.
func ended(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return driver.ErrClosed
	}
	return redisqueue.Ended(ctx, err)
}

// explain translates the error of a request for the core.
func (d *Driver) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redisqueue.ErrClosed), errors.Is(err, redis.ErrClosed) && d.life.Closed():
		return driver.ErrClosed
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
		return redisqueue.Ended(ctx, d.listener.Err())
	}
	return redisqueue.Unavailable(err)
}

// await waits until the process can be notified of a grant.
func (d *Driver) await(ctx context.Context) error {
	if err := d.listener.Await(ctx, d.life.Done()); err != nil {
		if errors.Is(err, redisqueue.ErrRefused) {
			return nil // heartbeats poll
		}
		if d.life.Closed() {
			return driver.ErrClosed
		}
		return redisqueue.Unavailable(err)
	}
	return nil
}

// agree checks, once, that all programs that use these locks have the same protocol
// version, and that the server is one that can keep locks. With write, it writes the
// version if there is none.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		v, err := d.do(ctx, redisqueue.ProtocolCall(d.protocol, d.protocolKey, write))
		if err == nil && !d.keys.Slots {
			err = d.onEach(ctx, func(ctx context.Context, server *redis.Client) error { return redisqueue.CheckServer(ctx, server) })
		}
		if err != nil {
			return "", err
		}
		return redisqueue.ParseProtocol(v)
	})
}

// mayUse is agree for a request that has a name, which it checks too.
func (d *Driver) mayUse(ctx context.Context, name string, write bool) error {
	if err := d.keys.CheckName(name); err != nil {
		return err
	}
	return d.agree(ctx, write)
}

// onEach calls f with each server that holds keys; it returns when ctx ends.
func (d *Driver) onEach(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	return d.aside(ctx, func() error {
		switch c := d.client.(type) {
		case *redis.ClusterClient:
			return c.ForEachMaster(ctx, f)
		case *redis.Client:
			return f(ctx, c)
		default:
			return driver.ErrUnsupported
		}
	})
}

// aside runs f, which makes a request without the pipe, in a goroutine of its own: go-redis
// does not watch contexts while it waits for an answer. If ctx ends before f does, the
// caller must not use what f writes.
func (d *Driver) aside(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	d.listener.Start() // its error says why there is no connection
	if !d.life.Go(func() { done <- f() }) {
		return driver.ErrClosed
	}
	select {
	case err := <-done:
		return d.explain(ctx, err)
	case <-ctx.Done():
		return redisqueue.Ended(ctx, d.listener.Err())
	}
}

// ServerVersion implements driver.ServerVersioner. On a Cluster it asks one of the
// servers.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	version := make(chan string, 1)
	err := d.aside(ctx, func() error {
		v, err := redisqueue.ServerVersion(ctx, d.client)
		version <- v
		return err
	})
	if err != nil {
		return "", err
	}
	return <-version, nil
}

package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// handOnBound is how long a release that hands the lock on waits for its answer. Then the release has failed, and the core
// repeats it: the server grants the next ticket when it has the release. A waiter whose own request took as long is not handed
// the lock.
const handOnBound = 500 * time.Millisecond

var errHandOn = driver.Unavailable(fmt.Errorf("redis: no answer to the release within %v", handOnBound))

// Release implements driver.Driver, in one request. Releases of a name that hand the lock on share their requests.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if !d.handOn(h) {
		return d.release(ctx, h, false)
	}
	once, cancel := context.WithTimeoutCause(ctx, handOnBound, errHandOn)
	defer cancel()
	return d.release(once, h, true)
}

func (d *Driver) release(ctx context.Context, h driver.Hold, join bool) error {
	c := d.keys.Call(redisqueue.Release, d.keys.All(d.keys.Main(h.Name)), nil, d.unanswered.Requests(h.ID))
	c.SetArg(0, c.Ticket(h.ID, false))
	c.Join = join
	v, err := d.do(ctx, c)
	if err != nil {
		return err
	}
	d.releaseAnswered(h.ID)
	if v == int64(0) && c.Sent() < 2 { // else an earlier sending may have removed it
		return driver.ErrLost
	}
	return nil
}

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	if err := d.sure(ctx, h.ID); err != nil {
		return err
	}
	rs := []driver.Renewal{{Hold: h, TTL: ttl}}
	c := d.renewCall(rs)
	v, err := d.do(ctx, c)
	return d.renewed(c, rs, nil, v, err)[0]
}

// perRequest is how many leases one request renews, where all are on one server.
const perRequest = 100

// RenewAll implements driver.BatchRenewer. All requests go out together.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	size := 1 // the names may be on different servers
	if !d.keys.Slots {
		size = perRequest
	}
	d.listener.Start()
	unsure := d.unsure()
	var calls []*redisqueue.Call
	for i := 0; i < len(rs); i += size {
		c := d.renewCall(rs[i:min(i+size, len(rs))])
		d.pipe.Start(ctx, c)
		calls = append(calls, c)
	}
	errs := make([]error, 0, len(rs))
	for i, c := range calls {
		v, err := c.Wait()
		errs = append(errs, d.renewed(c, rs[i*size:min((i+1)*size, len(rs))], unsure, v, d.explain(ctx, err))...)
	}
	return errs
}

// renewed returns the result of each of some renewals from their answer. unsure has the tickets that the
// server may not have granted when it answered.
func (d *Driver) renewed(c *redisqueue.Call, rs []driver.Renewal, unsure map[string]*handed, v any, err error) []error {
	var held []int64
	var acked error
	if err == nil {
		held, err = redisqueue.Ints("renew", v, len(rs))
		acked = redisqueue.Unavailable(c.Acked())
	}
	errs := make([]error, len(rs))
	for i := range errs {
		switch {
		case err != nil:
			errs[i] = err
		case held[i] == 0 && unsure[rs[i].ID] != nil:
			errs[i] = errHanded
		case held[i] == 0:
			d.handoff.Lost(rs[i].ID)
			errs[i] = driver.ErrLost
		default:
			errs[i] = acked
		}
	}
	return errs
}

// Shorten implements driver.Shortener.
func (d *Driver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	c := d.keys.Call(redisqueue.Shorten, d.keys.All(d.keys.Main(h.Name)), h.ID, millis(left))
	v, err := d.do(ctx, c)
	switch {
	case err != nil:
		return err
	case v == int64(0):
		return driver.ErrLost
	case v != int64(1):
		return redisqueue.Unexpected("shorten", v)
	}
	return nil
}

// Bounds implements driver.Bounder. Redis counts in milliseconds. The first waiter's
// process checks when the holder's lease ends, which it knows from its last heartbeat.
func (d *Driver) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{
		MinTTL:   time.Millisecond,
		Crash:    max(ttl, redisqueue.Heartbeat) + 200*time.Millisecond,
		Liveness: redisqueue.Liveness + 200*time.Millisecond,
		Silence:  redisqueue.Heartbeat + heartbeatBound,
	}
}

package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

func (d *Driver) releaseCall(n *node, key, id string) *call {
	c := &call{script: d.keys.Script(redisline.RedlockRelease), keys: []string{key}, args: []any{id}}
	if n.strayed(id) {
		c.args = append(c.args, 1)
	}
	return c
}

// Release implements driver.Driver: one request to each node, all at once. It
// returns when a majority has answered; the others follow, and who is not
// reached is asked again for as long as the lease may last there.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if d.isClosed() {
		return driver.ErrClosed
	}
	d.removed(h.ID, 1<<len(d.nodes)-1)
	lease := d.forget(h.ID)
	key := d.keys.Main(h.Name)
	c := d.newCount(isOne("release"))
	take := c.take
	until := time.Now().Add(lease)
	c.take = func(node int, v any, err error) bool {
		d.released(d.nodes[node], key, h.ID, until, err)
		return take(node, v, err)
	}
	err := d.ask(ctx, c.poll, func(n *node) *call { return d.releaseCall(n, key, h.ID) })
	if v := c.verdict(); err == nil || v == nil {
		return v
	}
	return err
}

// forget drops what is known of a ticket that is to go, and returns for how
// long nodes may keep it.
func (d *Driver) forget(id string) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.losses, id)
	t := d.held[id]
	if t == nil {
		return time.Minute
	}
	delete(d.held, id)
	return max(t.r.TTL, time.Until(t.until))
}

// release removes a ticket from one node in the background.
func (d *Driver) release(n *node, key, id string, lease time.Duration) {
	d.releaseBy(n, key, id, time.Now().Add(lease))
}

func (d *Driver) releaseBy(n *node, key, id string, until time.Time) {
	c := d.releaseCall(n, key, id)
	c.done = func(_ any, err error) { d.released(n, key, id, until, err) }
	n.add(c)
}

// again is how long after a failed release a node is asked again.
const again = time.Second

// released takes in a node's answer to a release, and asks again if there was none.
func (d *Driver) released(n *node, key, id string, until time.Time, err error) {
	switch {
	case err == nil:
		n.settled(id)
	case time.Now().Add(again).Before(until) && !errors.Is(err, errClosed):
		n.owe("release "+id, again, func() { d.releaseBy(n, key, id, until) })
	}
}

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// perRequest is how many leases one request renews.
const perRequest = 100

// RenewAll implements driver.BatchRenewer. All requests go out together.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	if d.isClosed() {
		errs := make([]error, len(rs))
		for i := range errs {
			errs[i] = driver.ErrClosed
		}
		return errs
	}
	var batches []*renewal
	for i := 0; i < len(rs); i += perRequest {
		b := d.newRenewal(rs[i:min(i+perRequest, len(rs))])
		batches = append(batches, b)
		if !d.begin() {
			b.err = driver.ErrClosed
			close(b.ended)
			continue
		}
		go func() {
			defer d.work.Done()
			defer close(b.ended)
			b.err = d.ask(ctx, b.poll, b.call)
		}()
	}
	errs := make([]error, 0, len(rs))
	for _, b := range batches {
		<-b.ended
		errs = append(errs, b.verdicts()...)
	}
	return errs
}

// renewal is one request to each node to renew several leases.
type renewal struct {
	*poll
	d       *Driver
	rs      []driver.Renewal
	asked   time.Time
	yes, no []int
	errs    []error
	heard   []bool
	short   []uint64 // for each lease the nodes that do not have it
	settled bool     // verdicts were told: late answers are acted on as they come
	err     error
	ended   chan struct{}
}

func (d *Driver) newRenewal(rs []driver.Renewal) *renewal {
	b := &renewal{
		d: d, rs: rs, asked: time.Now(), yes: make([]int, len(rs)), no: make([]int, len(rs)), short: make([]uint64, len(rs)),
		errs: make([]error, len(d.nodes)), heard: make([]bool, len(d.nodes)), ended: make(chan struct{}),
	}
	b.poll = newPoll(b.take)
	return b
}

func (b *renewal) call(*node) *call {
	keys := make([]string, len(b.rs))
	args := make([]any, 0, 2*len(b.rs))
	for i, r := range b.rs {
		keys[i] = b.d.keys.Main(r.Name)
		args = append(args, r.ID, b.d.millis(r.TTL))
	}
	return &call{script: b.d.keys.Script(redisline.RedlockRenew), keys: keys, args: args}
}

func (b *renewal) take(node int, v any, err error) bool {
	var held []int64
	if err == nil {
		held, err = redisline.Ints("renew", v, len(b.rs))
	}
	if err != nil {
		b.errs[node] = err
		return false
	}
	b.heard[node] = true
	enough := true
	for i, h := range held {
		if h == 1 {
			b.yes[i]++
		} else {
			b.no[i]++
			b.short[i] |= 1 << node
			if b.settled {
				b.mend(i, 1<<node)
			}
		}
		enough = enough && (b.yes[i] >= b.d.quorum || b.no[i] > len(b.d.nodes)-b.d.quorum)
	}
	return enough
}

// verdicts tells what has become of each lease.
func (b *renewal) verdicts() []error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.settled = true
	errs := make([]error, len(b.rs))
	for i := range b.rs {
		switch {
		case b.yes[i] >= b.d.quorum:
			b.extend(i)
			b.mend(i, b.short[i])
		case b.no[i] > len(b.d.nodes)-b.d.quorum:
			errs[i] = driver.ErrLost
			b.dispose(b.rs[i].Hold)
		case b.err != nil:
			errs[i] = b.err
		default:
			errs[i] = b.d.unreached(b.errs, func(n int) bool { return b.heard[n] })
		}
	}
	return errs
}

// dispose removes what is left of a lease that is lost. A ticket that never
// held stays.
func (b *renewal) dispose(h driver.Hold) {
	b.d.mu.Lock()
	_, held := b.d.held[h.ID]
	b.d.mu.Unlock()
	if held {
		b.d.dispose(h, b.d.forget(h.ID))
	}
}

// dispose removes what is left of a ticket that is lost, in the background.
func (d *Driver) dispose(h driver.Hold, lease time.Duration) {
	for _, n := range d.nodes {
		d.release(n, d.keys.Main(h.Name), h.ID, lease)
	}
}

package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
)

// lease is a lease of etcd with the tickets on it. All renewed tickets of one
// TTL share one, a fixed ticket has its own. Nobody keeps an idle lease
// alive: it ends by itself. Driver.mu guards what is not constant.
type lease struct {
	id      clientv3.LeaseID
	seconds int64 // as asked for: its pool
	fixed   bool

	ttl     time.Duration // as granted
	sent    time.Time     // before the last request that started it anew was sent
	tickets int           // that are joining, waiting, held or leaving
	waiting int           // of these, those that wait: the driver keeps it alive
	doomed  int           // tickets that may stand in line and must not
	retired bool          // takes no more tickets
	over    bool          // has ended, or is being revoked
	retryAt time.Time     // of the keeper, after a failure
	busy    bool          // the keeper's keep-alive is under way
}

// pool is the shared lease of one TTL.
type pool struct {
	turn    chan struct{} // held by who is asking the store for the lease
	current *lease        // nil: none yet
}

// Tickets attach to a shared lease that was last renewed no longer ago than
// this part of its TTL: then the holder's trust is nearly whole, and an
// acquisition costs no request for the lease.
const freshPart = 6

// attach counts a ticket on a lease of at least ttl that was started anew just
// now or, if it is shared, lately.
func (d *Driver) attach(ctx context.Context, ttl time.Duration, fixed bool) (*lease, error) {
	secs := seconds(ttl)
	if fixed {
		return d.grantLease(ctx, secs, nil)
	}
	d.mu.Lock()
	p := d.pools[secs]
	if p == nil {
		p = &pool{turn: make(chan struct{}, 1)}
		d.pools[secs] = p
	}
	if l := p.fresh(); l != nil {
		l.tickets++
		d.mu.Unlock()
		return l, nil
	}
	d.mu.Unlock()
	select {
	case p.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, d.unanswered(ctx)
	}
	defer func() { <-p.turn }()
	return d.freshen(ctx, p, secs)
}

// fresh returns the current lease if it need not be renewed first. With mu held.
func (p *pool) fresh() *lease {
	l := p.current
	if l == nil || time.Since(l.sent) > l.ttl/freshPart {
		return nil
	}
	return l
}

// freshen renews the current lease of a pool, or makes another.
func (d *Driver) freshen(ctx context.Context, p *pool, secs int64) (*lease, error) {
	d.mu.Lock()
	l := p.fresh()
	if l != nil { // the one before us in turn has seen to it
		l.tickets++
		d.mu.Unlock()
		return l, nil
	}
	if l = p.current; l != nil {
		l.tickets++ // so that it is not revoked meanwhile
	}
	d.mu.Unlock()
	if l == nil {
		return d.grantLease(ctx, secs, p)
	}
	err := d.keepAlive(ctx, l)
	d.mu.Lock()
	if err == nil && !l.retired && !l.over {
		d.mu.Unlock()
		return l, nil
	}
	d.detach(l)
	d.unlock()
	if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return d.grantLease(ctx, secs, p)
	}
	return nil, err
}

// grantLease asks for a lease, with one ticket counted on it, for a pool or for
// a fixed ticket. One whose answer is lost ends by itself.
func (d *Driver) grantLease(ctx context.Context, secs int64, p *pool) (*lease, error) {
	var (
		sent time.Time
		resp *etcdserverpb.LeaseGrantResponse
	)
	err := d.insist(ctx, func(ctx context.Context) (err error) {
		sent = time.Now()
		resp, err = etcdserverpb.NewLeaseClient(d.client.ActiveConnection()).
			LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: secs})
		return err
	})
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	l := &lease{
		id: clientv3.LeaseID(resp.ID), seconds: secs, fixed: p == nil, tickets: 1,
		ttl: time.Duration(resp.TTL) * time.Second, sent: sent,
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leases[l.id] = l
	if resp.TTL > secs || l.ttl < d.shortest {
		d.shortest = l.ttl
	}
	if p != nil {
		p.current = l
	}
	return l, nil
}

// detach uncounts a ticket. A lease that will not be used again is revoked with
// its last one. With mu held.
func (d *Driver) detach(l *lease) {
	l.tickets--
	if l.tickets > 0 || !l.fixed && !l.retired || l.over {
		return
	}
	l.over = true
	d.spawn(func() { d.revoke(l) })
}

// startedBefore reports whether a lease was last started anew before a moment.
func (l *lease) startedBefore(d *Driver, t time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return l.sent.Before(t)
}

// retire takes no more tickets on a lease. With mu held.
func (d *Driver) retire(l *lease) {
	l.retired = true
	if p := d.pools[l.seconds]; p != nil && p.current == l {
		p.current = nil
	}
}

// revoke ends a lease that nobody uses, and with it whatever stands in a line
// and should not. If the store cannot be reached it ends by itself, since
// nobody renews it.
func (d *Driver) revoke(l *lease) {
	d.mu.Lock()
	until := l.sent.Add(l.ttl)
	d.mu.Unlock()
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		ctx, cancel := d.bounded(revokeBound)
		_, err := d.client.Revoke(ctx, l.id)
		cancel()
		if err == nil || errors.Is(err, rpctypes.ErrLeaseNotFound) || !time.Now().Before(until) ||
			!d.pause(d.ctx, delay) {
			break
		}
	}
	if d.ctx.Err() != nil {
		return // Close revokes it
	}
	d.mu.Lock()
	d.leaseOver(l, nil)
	d.unlock()
}

// revokeAll ends the leases at Close, except those that a minimum hold keeps, within
// a bound that is short if no ticket is left.
func (d *Driver) revokeAll() {
	bound := closeBound
	d.mu.Lock()
	ls := maps.Clone(d.leases)
	for _, t := range d.tickets {
		if t.state == held && t.stays > 0 && time.Since(t.since) < t.stays {
			delete(ls, t.lease.id)
		} else if !t.absent {
			bound = revokeBound
		}
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(context.Background()), bound)
	defer cancel()
	each(slices.Collect(maps.Values(ls)), func(l *lease) { _, _ = d.client.Revoke(ctx, l.id) }) // not reached: it ends by itself
}

// each calls f for all of xs, a few at a time.
func each[T any](xs []T, f func(T)) {
	const atOnce = 16
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, x := range xs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(x)
		})
	}
	group.Wait()
}

// leaseOver loses all tickets of a lease that has ended. With mu held; losses
// are told when it ends.
func (d *Driver) leaseOver(l *lease, cause error) {
	l.over = true
	d.retire(l)
	delete(d.leases, l.id)
	if l.tickets == 0 && l.doomed == 0 {
		return
	}
	for _, t := range d.tickets {
		// One that is joining is told by its own answer, one that is leaving too.
		if t.lease == l && (t.state == waiting || t.state == held) {
			d.lose(t, cause)
		}
	}
	for _, ln := range d.lines { // a doomed ticket's ID may have been taken up again
		for _, t := range ln.slots {
			if t != nil && t.lease == l && t.state == doomed {
				d.forget(t)
			}
		}
	}
}

// keepAlive starts a lease anew. rpctypes.ErrLeaseNotFound says that it is
// over; its tickets have been told then.
func (d *Driver) keepAlive(ctx context.Context, l *lease) error {
	d.survey()
	sent := time.Now()
	ttl, err := d.ping(ctx, l.id)
	d.mu.Lock()
	if err == nil && sent.After(l.sent) {
		l.sent, l.ttl = sent, time.Duration(ttl)*time.Second
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		d.leaseOver(l, errLeaseOver)
	}
	d.storeErr = err
	sweep := err == nil && l.doomed > 0
	d.unlock()
	if err != nil {
		return d.explain(ctx, err)
	}
	if sweep {
		d.sweep(ctx, l)
	}
	return nil
}

// sweep deletes the doomed tickets of a lease. One whose put was never answered
// stays doomed, since the put may still be on its way: it is deleted again at
// the next keep-alive, and ends with the lease for good.
func (d *Driver) sweep(ctx context.Context, l *lease) {
	d.mu.Lock()
	var ts []*ticket
	for _, ln := range d.lines {
		for _, t := range ln.slots {
			if t != nil && t.lease == l && t.state == doomed {
				ts = append(ts, t)
			}
		}
	}
	d.mu.Unlock()
	each(ts, func(t *ticket) { _, _ = d.erase(ctx, t, false) }) // again at the next keep-alive
}

// fresh makes sure that a lease that a ticket was granted under still runs for
// most of its TTL: a waiter's fixed one, and one of a ticket with a minimum hold,
// for all of it.
func (d *Driver) fresh(ctx context.Context, t *ticket) error {
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		d.mu.Lock()
		l := t.lease
		lost := t.state != held
		old := time.Since(l.sent) > l.ttl/3 || (l.fixed && t.waited || t.stays > 0) && l.sent.Before(t.since)
		d.mu.Unlock()
		if lost {
			return driver.ErrLost
		}
		if !old {
			return nil
		}
		err := d.keepAlive(ctx, l)
		if err != nil && !errors.Is(err, rpctypes.ErrLeaseNotFound) && !d.pause(ctx, delay) {
			return d.stopped(ctx)
		}
	}
}

package etcd

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
)

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return driver.ErrClosed
	}
	t := d.find(h)
	if t == nil {
		d.mu.Unlock()
		return d.releaseStranger(ctx, h)
	}
	if !t.settled {
		answered := t.whenAnswered()
		d.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return d.abandon(ctx, t)
		}
		d.mu.Lock()
	}
	if t.state == gone {
		d.mu.Unlock()
		return driver.ErrLost
	}
	first := t.state == waiting || t.state == held
	if t.state != doomed {
		d.unseat(t)
		t.state = leaving
	}
	d.mu.Unlock()
	return d.remove(ctx, t, first)
}

// abandon gives up a ticket whose put is still under way. When that is
// answered, the ticket is doomed.
func (d *Driver) abandon(ctx context.Context, t *ticket) error {
	d.mu.Lock()
	t.adrift = true
	if t.settled && t.state != gone { // just now
		d.doom(t)
	}
	d.unlock()
	return d.unanswered(ctx)
}

// remove deletes a ticket that nobody wants any more. When the answer does not
// come the ticket is doomed: the lease may be shared with tickets that go on
// for long, so waiting for its end will not do.
func (d *Driver) remove(ctx context.Context, t *ticket, first bool) error {
	was, err := d.erase(ctx, t, first)
	switch {
	case err != nil:
		d.mu.Lock()
		d.doom(t)
		d.unlock()
		return d.explain(ctx, err)
	case !was:
		return driver.ErrLost
	}
	return nil
}

// erase deletes a ticket and takes it off the books. It reports whether it was
// there.
//
// The first deletion of a ticket need not compare numbers, which would cost the
// server a read: nobody else ever puts a ticket under this key, and the driver
// itself puts the next one there when this one is forgotten. That may be before
// the deletion is done, if it was not answered and another one was: then the
// slot is not used again. Those that come after it compare, so that a release that is
// asked for twice spoils no slot.
func (d *Driver) erase(ctx context.Context, t *ticket, first bool) (was bool, err error) {
	loose := first || t.rev == 0
	if loose {
		d.mu.Lock()
		t.loose++
		d.mu.Unlock()
	}
	was, at, err := d.deleteTicket(ctx, t, loose)
	d.mu.Lock()
	defer d.unlock()
	if loose && (err == nil || isForbidden(err)) {
		t.loose--
	}
	if err != nil {
		return false, err
	}
	t.absent = true
	if w := t.line.watch; w != nil {
		w.view.remove(t.key, at)
		t.line.settle()
	}
	if !t.unknown { // else the put may still arrive
		d.forget(t)
	}
	return was, nil
}

// deleteTicket deletes a ticket or, if loose, whatever stands under its key. It
// tells the store's revision after that.
func (d *Driver) deleteTicket(ctx context.Context, t *ticket, loose bool) (was bool, at int64, err error) {
	if err := ctx.Err(); err != nil {
		return false, 0, err
	}
	ctx = d.asking(ctx)
	if loose {
		resp, err := d.client.Delete(ctx, t.key)
		if err != nil {
			return false, 0, err
		}
		return resp.Deleted > 0, resp.Header.Revision, nil
	}
	resp, err := d.client.Txn(ctx).If(standing(t.key, t.rev)).Then(clientv3.OpDelete(t.key)).Commit()
	if err != nil {
		return false, 0, err
	}
	return resp.Succeeded, resp.Header.Revision, nil
}

// releaseStranger releases a ticket that is not of this driver's making.
func (d *Driver) releaseStranger(ctx context.Context, h driver.Hold) error {
	kv, _, err := d.lookUp(ctx, h)
	if err != nil {
		return err
	}
	return d.deleteKey(ctx, string(kv.Key), kv.CreateRevision)
}

// deleteKey deletes a ticket by its number.
func (d *Driver) deleteKey(ctx context.Context, key string, rev int64) error {
	resp, err := d.commit(ctx, []clientv3.Cmp{standing(key, rev)}, []clientv3.Op{clientv3.OpDelete(key)})
	if err != nil {
		return d.explain(ctx, err)
	}
	if !resp.Succeeded {
		return driver.ErrLost
	}
	return nil
}

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// renewal is one entry of a batch whose ticket is of this driver's making.
type renewal struct {
	t   *ticket
	ttl time.Duration
	err *error
}

// RenewAll implements driver.BatchRenewer: two requests for each lease, however
// many tickets are on it. One keeps the lease alive, the other finds out which
// tickets are still there.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	byLease := make(map[*lease][]renewal)
	var strangers, unsettled []int
	d.mu.Lock()
	for i, r := range rs {
		switch t := d.find(r.Hold); {
		case d.closed:
			errs[i] = driver.ErrClosed
		case t == nil:
			strangers = append(strangers, i)
		case t.state == leaving || t.state == doomed:
			unsettled = append(unsettled, i)
		case t.state != held:
			errs[i] = driver.ErrLost
		default:
			byLease[t.lease] = append(byLease[t.lease], renewal{t, r.TTL, &errs[i]})
		}
	}
	d.mu.Unlock()
	leases := make([]*lease, 0, len(byLease))
	for l := range byLease {
		leases = append(leases, l)
	}
	each(leases, func(l *lease) {
		ctx, cancel := tryOf(ctx, leases)
		defer cancel()
		d.renewLease(ctx, l, byLease[l])
	})
	each(strangers, func(i int) { errs[i] = d.renewStranger(ctx, rs[i]) })
	each(unsettled, func(i int) { errs[i] = d.renewUnsettled(ctx, rs[i].Hold) })
	return errs
}

// tryOf bounds the requests for one of several leases, so that one that hangs does
// not keep the answer from those that end sooner: the core asks again.
func tryOf(ctx context.Context, leases []*lease) (context.Context, context.CancelFunc) {
	if len(leases) == 1 {
		return ctx, func() {}
	}
	shortest := time.Duration(slices.MinFunc(leases, func(a, b *lease) int { return cmp.Compare(a.seconds, b.seconds) }).seconds) * time.Second
	return context.WithTimeout(ctx, max(shortest/3, time.Second))
}

// renewUnsettled is the renewal of a ticket that is being released: it is not
// renewed, and is lost if the store says so already.
func (d *Driver) renewUnsettled(ctx context.Context, h driver.Hold) error {
	d.mu.Lock()
	t := d.find(h)
	d.mu.Unlock()
	if t == nil {
		return driver.ErrLost
	}
	there, err := d.present(ctx, nil, []renewal{{t: t}})
	switch {
	case err != nil:
		return d.explain(ctx, err)
	case there(t):
		return errUnsettled
	}
	return driver.ErrLost
}

// renewLease renews tickets that share a lease.
func (d *Driver) renewLease(ctx context.Context, l *lease, rs []renewal) {
	fail := func(err error) {
		for _, r := range rs {
			*r.err = err
		}
	}
	if err := d.keepAlive(ctx, l); err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			err = errLeaseOver
		}
		fail(err)
		return
	}
	there, err := d.present(ctx, l, rs)
	if err != nil {
		fail(d.explain(ctx, err))
		return
	}
	for _, r := range rs {
		d.mu.Lock()
		short := r.ttl > l.ttl
		again := r.t.unsure
		if !there(r.t) {
			*r.err = driver.ErrLost
			if r.t.state == held {
				d.forget(r.t)
			}
		}
		d.unlock()
		if *r.err == nil && (short || again) {
			*r.err = d.move(ctx, r.t, r.ttl)
		}
	}
}

// move puts a ticket on a lease of at least ttl.
func (d *Driver) move(ctx context.Context, t *ticket, ttl time.Duration) error {
	began := time.Now()
	l, err := d.attach(ctx, max(ttl, t.ttl), t.lease.fixed)
	if err != nil {
		return err
	}
	if l.startedBefore(d, began) {
		if err := d.keepAlive(ctx, l); err != nil {
			d.mu.Lock()
			d.detach(l)
			d.unlock()
			return err
		}
	}
	resp, err := d.commit(ctx, []clientv3.Cmp{standing(t.key, t.rev)},
		[]clientv3.Op{clientv3.OpPut(t.key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(l.id))})
	d.mu.Lock()
	defer d.unlock()
	if t.state != held {
		d.detach(l)
		return driver.ErrLost
	}
	old := t.lease
	t.lease = l
	t.unsure = err != nil
	switch {
	case err != nil:
		// On the one or on the other: a fixed one must not be revoked.
		old.tickets--
		return d.explain(ctx, err)
	case !resp.Succeeded:
		d.detach(old)
		d.forget(t)
		return driver.ErrLost
	}
	d.detach(old)
	return nil
}

// renewStranger renews a ticket that is not of this driver's making.
func (d *Driver) renewStranger(ctx context.Context, r driver.Renewal) error {
	kv, isHeld, err := d.lookUp(ctx, r.Hold)
	if err != nil {
		return err
	}
	if !isHeld {
		return driver.ErrLost
	}
	ttl, err := d.ping(ctx, clientv3.LeaseID(kv.Lease))
	if err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return errLeaseOver
		}
		return d.explain(ctx, err)
	}
	if seconds(r.TTL) <= ttl {
		return nil
	}
	l, err := d.client.Grant(clientv3.WithRequireLeader(ctx), seconds(r.TTL))
	if err != nil {
		return d.explain(ctx, err)
	}
	resp, err := d.commit(ctx, []clientv3.Cmp{standing(string(kv.Key), kv.CreateRevision)},
		[]clientv3.Op{clientv3.OpPut(string(kv.Key), "", clientv3.WithIgnoreValue(), clientv3.WithLease(l.ID))})
	if err != nil {
		return d.explain(ctx, err)
	}
	if !resp.Succeeded {
		return driver.ErrLost
	}
	return nil
}

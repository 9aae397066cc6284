package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver.
//
// A request that waits puts its ticket and reads the queue in one transaction,
// whose answer tells whether it is granted. One that does not wait looks at the
// queue first, and puts its ticket, on condition that it is granted, only if it
// would be: a refusal is a read and leaves nothing.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	const tries = 3 // of which each finds that its lease has just ended
	delay := busyFirst
	for try := 1; ; {
		g, err := d.acquire(ctx, r)
		switch {
		case errors.Is(err, rpctypes.ErrTooManyRequests):
			if !d.pause(ctx, delay/2+rand.N(delay)) { //nolint:gosec // no secret
				return g, d.explain(ctx, err)
			}
			delay = min(2*delay, busyMost)
		case errors.Is(err, rpctypes.ErrLeaseNotFound) && try < tries:
			try++
		default:
			return g, err
		}
	}
}

// How long to leave a server alone that has more to do than it takes on.
const (
	busyFirst = 20 * time.Millisecond
	busyMost  = time.Second
)

func (d *Driver) acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := d.agree(ctx, true); err != nil {
		return driver.Grant{}, driver.NoTicket(err) // none was asked for before
	}
	if t, again := d.again(r); again {
		return d.resume(ctx, t, r)
	}
	return d.take(ctx, r, false)
}

// take asks for a ticket that this driver does not know. With again, an earlier put
// of it may still be under way.
func (d *Driver) take(ctx context.Context, r driver.Request, again bool) (driver.Grant, error) {
	l, since, err := d.prepare(ctx, r)
	if err != nil {
		if !again {
			err = driver.NoTicket(err) // no put was sent
		}
		return driver.Grant{}, err
	}
	d.mu.Lock()
	t := d.enroll(r, l, again)
	longer, leave, done := d.outlive(ctx)
	if t.watch = t.line.watch; t.watch != nil {
		t.watch.view.begin()
	}
	answered := t.whenAnswered()
	sent := d.spawn(func() {
		defer done()
		d.put(longer, t, r, since)
	})
	if !sent {
		done()
		d.settlePut(t, driver.ErrClosed)
	}
	d.unlock()
	select {
	case <-answered:
		return d.answer(ctx, t, r)
	case <-ctx.Done():
		leave()
		return driver.Grant{}, d.unanswered(ctx)
	}
}

// prepare does what comes before the put: for a request that does not wait a look
// at the queue, which tells up to which revision it is known, and a lease.
func (d *Driver) prepare(ctx context.Context, r driver.Request) (l *lease, since int64, err error) {
	if d.ctx.Err() != nil {
		return nil, 0, driver.ErrClosed
	}
	if !r.Wait {
		if since, err = d.look(ctx, r); err != nil {
			return nil, 0, err
		}
	}
	l, err = d.attach(ctx, max(r.TTL, r.MinHold), !r.Renewed || r.MinHold > 0)
	return l, since, err
}

// look reports whether a request that does not wait would be granted now, and at
// which revision that was. A read costs the store no entry of its log.
func (d *Driver) look(ctx context.Context, r driver.Request) (since int64, err error) {
	resp, err := d.client.Txn(d.asking(ctx)).Then(lineOps(d.linePrefix(r.Name), 1)...).Commit()
	if err != nil {
		return 0, d.explain(ctx, err)
	}
	if !grantable(r, resp.Responses) {
		return 0, driver.ErrNotAcquired
	}
	return resp.Header.Revision, nil
}

// grantable reports whether a request would be granted in the queue that lineOps
// have read.
func grantable(r driver.Request, line []*etcdserverpb.ResponseOp) bool {
	exclusive, shared := line[0].GetResponseRange().Count, line[1].GetResponseRange().Count
	if !r.Shared {
		return exclusive+shared == 0
	}
	return exclusive == 0 && (r.Limit == 0 || shared < int64(r.Limit))
}

// again returns the ticket of a request that is asked again.
func (d *Driver) again(r driver.Request) (*ticket, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.find(driver.Hold{Name: r.Name, ID: r.ID})
	return t, t != nil
}

// resume answers for a ticket that was asked for before.
func (d *Driver) resume(ctx context.Context, t *ticket, r driver.Request) (driver.Grant, error) {
	if err := d.await(ctx, t); err != nil {
		return driver.Grant{}, err
	}
	d.mu.Lock()
	s := t.state
	d.mu.Unlock()
	if s == waiting && r.Wait || s == held {
		return d.answer(ctx, t, r)
	}
	// It was given up, or waits though it must not: it leaves the queue for good.
	err := d.Release(ctx, driver.Hold{Name: r.Name, ID: r.ID})
	switch {
	case err != nil && !errors.Is(err, driver.ErrLost):
		return driver.Grant{}, err
	case s == waiting:
		return driver.Grant{}, driver.ErrNotAcquired
	}
	d.mu.Lock()
	if d.tickets[t.id] == t {
		delete(d.tickets, t.id) // the line keeps it, for its lease to end
	}
	d.mu.Unlock()
	return d.take(ctx, r, true)
}

// put sends the ticket to the store, in the background: when the caller's context
// has ended the answer is waited for a little longer, since a put of which nobody
// knows whether it will still arrive costs the lease (see doom).
func (d *Driver) put(ctx context.Context, t *ticket, r driver.Request, since int64) {
	if r.Wait {
		d.join(ctx, t, r)
	} else {
		d.try(ctx, t, r, since)
	}
}

// await waits for the answer to a put that is under way elsewhere.
func (d *Driver) await(ctx context.Context, t *ticket) error {
	d.mu.Lock()
	answered := t.whenAnswered()
	d.mu.Unlock()
	select {
	case <-answered:
		return nil
	case <-ctx.Done():
		return d.unanswered(ctx)
	case <-d.ctx.Done():
		return driver.ErrClosed
	}
}

// A line with more tickets of a class than this is not read with each put: what
// is missing is read when a ticket is about to be granted.
const shortLine = 512

// join puts a ticket that will wait, and reads the line with it.
func (d *Driver) join(ctx context.Context, t *ticket, r driver.Request) {
	resp, err := d.client.Txn(ctx).Then(d.joinOps(t, r)...).Commit()
	d.mu.Lock()
	defer d.unlock()
	if err == nil {
		d.joined(t, resp)
	}
	d.settlePut(t, err)
}

// joinOps read as much of the line as is of use to a ticket, and put it. In this
// order, since what was put would be read from the store's database, and all that
// is to be known is who is ahead. To an exclusive one the classes are all the
// same.
func (d *Driver) joinOps(t *ticket, r driver.Request) []clientv3.Op {
	d.mu.Lock()
	limit := int64(shortLine)
	if t.watch != nil && len(t.watch.view.places) > shortLine {
		limit = 1 // more would not be all either
	}
	d.mu.Unlock()
	if t.shared {
		return []clientv3.Op{
			classRange(t.line.prefix, exclusiveClass, limit), classRange(t.line.prefix, sharedClass, limit), t.putOp(r),
		}
	}
	return []clientv3.Op{classRange(t.line.prefix, "", limit), t.putOp(r)}
}

// free are the conditions under which a ticket is granted: that the line is
// empty or, for a reader, that it has no exclusive ticket. For a permit it
// is also that no shared ticket is newer than since.
func (t *ticket) free(since int64) []clientv3.Cmp {
	p := t.line.prefix
	switch {
	case !t.shared:
		return []clientv3.Cmp{noneSince(p, "", 0)}
	case t.limit > 0:
		return []clientv3.Cmp{noneSince(p, exclusiveClass, 0), noneSince(p, sharedClass, since)}
	}
	return []clientv3.Cmp{noneSince(p, exclusiveClass, 0)}
}

// joined takes the answer of a join: it tells the number, and whether the
// ticket is granted at once. With mu held.
func (d *Driver) joined(t *ticket, resp *clientv3.TxnResponse) {
	var line [][]*mvccpb.KeyValue
	ahead, whole := make([]int64, 0, 2), true
	for _, op := range resp.Responses[:len(resp.Responses)-1] {
		rr := op.GetResponseRange()
		line, ahead, whole = append(line, rr.Kvs), append(ahead, rr.Count), whole && !rr.More
	}
	t.rev = resp.Header.Revision
	ln := t.line
	unnoticed := ln.watch != nil && ln.watch != t.watch // deletions since the request
	if atOnce(t, ahead) {
		d.granted(t)
	} else {
		d.wait(t)
	}
	if ln.watch == nil {
		return
	}
	if whole && !unnoticed {
		ln.watch.view.joined(ln.prefix, t.place(), line...)
	} else {
		ln.watch.view.add(t.place())
	}
	ln.settle()
}

// atOnce reports whether a ticket that has just joined is granted, of how many
// tickets its joinOps counted ahead of it.
func atOnce(t *ticket, ahead []int64) bool {
	if !t.shared {
		return ahead[0] == 0
	}
	return ahead[0] == 0 && (t.limit == 0 || ahead[1] < int64(t.limit))
}

func (t *ticket) place() place { return place{rev: t.rev, key: t.key, shared: t.shared} }

func (t *ticket) putOp(r driver.Request) clientv3.Op {
	return clientv3.OpPut(t.key, string(encodeRecord(r, time.Now())), clientv3.WithLease(t.lease.id))
}

// granted makes a ticket a holder's. With mu held.
func (d *Driver) granted(t *ticket) {
	if t.state == waiting {
		t.waited = true
		delete(t.line.waiters, t.rev)
		t.lease.waiting--
		t.line.rest()
		close(t.ended)
	}
	t.state, t.since = held, time.Now()
	d.losses.held(d)
}

// try puts a ticket only if it will be granted.
//
// Whether the queue is empty, or has no exclusive ticket, is a condition of the
// transaction. How many readers there are is not anything that a transaction
// can compare, but whether there is a new one is: so a permit is put on
// condition that none has queued since they were counted. A transaction that was
// refused has counted them again.
func (d *Driver) try(ctx context.Context, t *ticket, r driver.Request, since int64) {
	for {
		resp, err := d.client.Txn(ctx).If(t.free(since)...).Then(t.putOp(r)).Else(lineOps(t.line.prefix, 1)...).Commit()
		if err == nil && !resp.Succeeded {
			if grantable(r, resp.Responses) {
				since = resp.Header.Revision
				continue
			}
			err = driver.ErrNotAcquired
		}
		d.mu.Lock()
		if err == nil {
			t.rev = resp.Header.Revision
			if w := t.line.watch; w != nil {
				w.view.add(t.place())
			}
			d.granted(t)
		}
		d.settlePut(t, err)
		d.unlock()
		return
	}
}

// settlePut takes the answer to a put. With mu held.
func (d *Driver) settlePut(t *ticket, err error) {
	t.settled = true
	if t.answered != nil {
		defer close(t.answered)
	}
	if t.watch != nil {
		t.watch.view.end()
		t.watch = nil
	}
	t.putErr = err
	switch {
	case err == nil:
		if t.adrift {
			d.doom(t)
		}
	case isRefusal(err):
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			d.leaseOver(t.lease, errLeaseOver)
		}
		d.forget(t)
	default:
		t.unknown = true
		d.doom(t)
	}
}

// isRefusal reports whether the store has said that a put was not done.
func isRefusal(err error) bool {
	return errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, rpctypes.ErrLeaseNotFound) ||
		errors.Is(err, driver.ErrClosed) || isForbidden(err) ||
		errors.Is(err, rpctypes.ErrTooManyRequests) || errors.Is(err, rpctypes.ErrNoSpace)
}

// isForbidden reports whether the store has said that it does not do this for
// this user.
func isForbidden(err error) bool {
	return errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserEmpty) || isLoggedOut(err)
}

// isLoggedOut reports whether the store wants the client to log in again.
func isLoggedOut(err error) bool {
	return errors.Is(err, rpctypes.ErrInvalidAuthToken) || errors.Is(err, rpctypes.ErrAuthOldRevision)
}

// answer tells what has become of a ticket whose put was answered.
func (d *Driver) answer(ctx context.Context, t *ticket, r driver.Request) (driver.Grant, error) {
	d.mu.Lock()
	s, err := t.state, t.putErr
	d.mu.Unlock()
	switch {
	case err != nil:
		told := d.explain(ctx, err)
		if isRefusal(err) && !t.again {
			told = driver.NoTicket(told)
		}
		return driver.Grant{}, told
	case s == waiting:
		return d.waitFor(ctx, t, r)
	case s == held:
		return d.grantOf(ctx, t)
	default:
		return driver.Grant{}, driver.ErrLost
	}
}

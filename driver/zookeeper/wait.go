package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
	"github.com/lockerproject/locker/internal/retry"
)

// run takes steps until the ticket is granted.
func (w *waiter) run(ctx context.Context) (driver.Grant, error) {
	for pause := newBackoff(); ; {
		if err := w.lost(); err != nil {
			return driver.Grant{}, err
		}
		w.reconnected = w.d.conn.Reconnected() // before anything is read
		g, wake, err := w.step(ctx)
		switch {
		case err == nil && wake == nil:
			return g, nil
		case err == nil:
			pause.Reset()
			err = w.sleep(ctx, wake)
		default:
			err = w.d.pauseAfter(ctx, err, &pause, w.bound)
		}
		if err != nil {
			return driver.Grant{}, err
		}
	}
}

// waiter is a ticket that waits.
type waiter struct {
	d            *Driver
	t            *ticket
	r            driver.Request
	parent, node string

	bound               time.Time       // for the tries until Request.Joined is called
	marks               bool            // it only marks the node when the ticket can be granted, see observe
	reconnected         <-chan struct{} // closed when the client has another connection
	poll                retry.Backoff   // the intervals without a wake
	ahead               string          // path of the node ahead that is watched; "" if the queue is
	seen                zkconn.State    // the state of its data when the watch was set
	predecessor         string          // ahead, if the release of a holder there grants this ticket
	predecessorReleased bool            // the predecessor was held before
	gone                <-chan struct{} // closed when the driver forgets the ticket; nil until Request.Joined is called
}

// A waiter does not rely on watches alone: the client may lose an event between one
// connection and the next. It sets its watches again in several requests, each of
// which asks for events since the last answer that the client has had. If another answer
// comes before such a request, or the connection ends between two of them, an earlier
// event is missed. So a waiter reads the queue again on each new connection. (The client
// cannot miss the deletion of a node in this way, but the change of a node, or of the
// queue.) A user's connection may drop the event of a new connection, or report none. So
// a waiter also polls, seldom.
const (
	pollFirst = 5 * time.Second
	pollMost  = 5 * time.Minute
)

func newWaiter(d *Driver, t *ticket, r driver.Request) *waiter {
	return &waiter{
		d: d, t: t, r: r, parent: parentOf(t.path), node: nodeOf(t.path),
		poll: retry.Backoff{First: pollFirst, Most: pollMost},
	}
}

// step finds out whether the ticket is granted. If not, wake fires when step must be
// called again.
func (w *waiter) step(ctx context.Context) (g driver.Grant, wake <-chan zk.Event, err error) {
	if !w.predecessorReleased {
		return w.read(ctx)
	}
	// The ticket is granted if its own node is still there. If that node was deleted
	// before the one ahead, the watch on it has fired before the watch on the one ahead.
	if !w.watched() {
		st, err := w.d.conn.Exists(ctx, w.t.path)
		switch {
		case err != nil:
			return g, nil, err
		case st == nil:
			return g, nil, w.deleted()
		}
	}
	g, err = w.granted(ctx)
	return g, nil, err
}

// read reads the queue. Then the ticket is granted, or wake fires when it is time to
// read the queue again.
func (w *waiter) read(ctx context.Context) (g driver.Grant, wake <-chan zk.Event, err error) {
	d := w.d
	v, err := d.list(ctx, w.parent)
	if err != nil {
		return g, nil, err
	}
	i := v.index(w.node)
	if i < 0 {
		return g, nil, w.deleted()
	}
	d.expectOthers(w.parent, len(v.entries) > 1)
	if v.granted(i) {
		// Even at the first reading: a later ticket may have seen this one wait, and
		// be waiting for its mark.
		if w.marks {
			w.mark(ctx)
			return g, nil, nil
		}
		if g, err = w.granted(ctx); err == nil && v.awaited(i) {
			d.conn.Go(w.mark)
		}
		return g, nil, err
	}
	if !w.r.Wait {
		if err = d.Release(ctx, w.t.hold); isGone(err) {
			err = driver.ErrNotAcquired
		}
		return g, nil, err
	}
	if err := w.queued(); err != nil {
		return g, nil, err
	}
	set, err := w.watch(ctx, v, i)
	return g, set.C, err
}

// queued calls Request.Joined, once, unless the ticket was released since the queue was read.
func (w *waiter) queued() error {
	if w.gone != nil {
		return nil
	}
	w.bound = time.Time{}
	w.d.mu.Lock()
	if w.d.tickets[w.r.ID] != w.t {
		w.d.mu.Unlock()
		return errRemoved
	}
	if w.t.gone == nil {
		w.t.gone = make(chan struct{})
		w.d.startWatching()
	}
	w.gone = w.t.gone
	w.d.mu.Unlock()
	if w.r.Joined != nil {
		w.observe()
	}
	return nil
}

// observe calls Request.Joined, which may take long. If permits are returned meanwhile, others
// wait for the mark of this ticket, see blocker. They do not wait for Joined.
func (w *waiter) observe() {
	if w.r.Limit > 0 {
		marker := newWaiter(w.d, w.t, w.r)
		marker.marks, marker.gone = true, w.gone
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		w.d.conn.Go(func(context.Context) {
			if retry.Sleep(ctx, watchDelay, w.d.conn.Closed()) {
				_, _ = marker.run(ctx)
			}
		})
	}
	w.r.Joined()
}

// watch sets the one watch that the ticket needs.
func (w *waiter) watch(ctx context.Context, v *view, i int) (zkconn.Watch, error) {
	before, seen := w.ahead, w.seen
	w.predecessor, w.ahead = "", ""
	b := v.blocker(i)
	if b < 0 {
		return w.d.conn.WatchChildren(ctx, w.parent, v.children)
	}
	ahead := v.entries[b]
	path := w.parent + "/" + ahead.node
	set, err := w.d.conn.WatchNode(ctx, path)
	w.ahead, w.seen = path, set.Seen
	if ahead.shared && w.r.Shared && set.Seen.Changes != 0 && (path != before || set.Seen != seen) {
		return zkconn.Fired, nil // the ticket ahead has marked its node: it was granted
	}
	if err != nil || ahead.shared || w.r.Shared && w.r.Limit > 0 {
		return set, err
	}
	// The release of a held exclusive ticket says that it was held (deleteTicket). Then
	// nothing else is ahead, and this ticket is granted if its own node is there. To
	// know that, it needs a watch.
	w.predecessor = path
	if !set.HasFired() && !w.watched() {
		err = w.d.watchTicket(ctx, w.t)
		if errors.Is(err, driver.ErrLost) {
			err = w.deleted()
		}
	}
	return set, err
}

// unchanged reports whether the node ahead is as it was when its watch was set. It costs
// one short read, while a listing reads the whole queue.
func (w *waiter) unchanged(ctx context.Context) bool {
	if w.ahead == "" {
		return false
	}
	st, err := w.d.conn.Exists(ctx, w.ahead)
	return err != nil || st != nil && zkconn.DataOf(st) == w.seen
}

// watched reports whether a watch that was set on the present connection shows that the
// ticket's own node is there.
func (w *waiter) watched() bool {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return w.d.conn.Shows(w.t.watch)
}

// deleted forgets the ticket, since its node is not there.
func (w *waiter) deleted() error {
	w.d.forget(w.t)
	return errRemoved
}

// granted makes the ticket held, if its session is certainly alive. A minimum hold
// begins now, so it needs a new confirmation.
func (w *waiter) granted(ctx context.Context) (driver.Grant, error) {
	if w.r.MinHold > 0 {
		if err := w.d.conn.Confirm(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
	asked, err := w.d.conn.LeaseStart(ctx, w.t.sess, w.r.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	if err := w.lost(); err != nil {
		return driver.Grant{}, err
	}
	return w.d.grant(w.t, w.r, asked)
}

// mark wakes the waiters that wait for the grant of this ticket, see blocker.
func (w *waiter) mark(ctx context.Context) {
	data := newRecord(w.r, w.t.sess.Lease())
	for pause := newBackoff(); !w.t.sess.Over(); {
		_, err := w.d.conn.Multi(ctx, &zk.SetDataRequest{Path: w.t.path, Data: data, Version: -1})
		if err == nil || final(err) || !retry.Sleep(ctx, pause.Next(), nil) {
			return
		}
	}
}

// sleep waits for a wake, or for the end of the ticket or of the wait.
func (w *waiter) sleep(ctx context.Context, wake <-chan zk.Event) error {
	poll := time.NewTimer(w.poll.Next())
	defer poll.Stop()
	for {
		select {
		case ev := <-wake:
			w.predecessorReleased = ev.Type == zk.EventNodeDataChanged && ev.Path == w.predecessor
			return nil
		case <-w.reconnected:
			return nil
		case <-poll.C:
			if !w.unchanged(ctx) {
				return nil
			}
			poll.Reset(w.poll.Next())
		case <-w.gone:
			return cmp.Or(w.lost(), errRemoved)
		case <-ctx.Done():
			return w.d.conn.EndError(ctx)
		case <-w.d.conn.Closed():
			return driver.ErrClosed
		}
	}
}

// lost returns ErrExpired if the ticket has gone with its session.
func (w *waiter) lost() error {
	if w.d.conn.Session(); w.t.sess.Over() {
		return zkconn.ErrExpired
	}
	return nil
}

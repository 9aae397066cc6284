package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
	"github.com/lockerproject/locker/internal/retry"
)

// await waits for the grant of a ticket that is queued.
func (d *Driver) await(ctx context.Context, t *ticket, r driver.Request, began time.Time) (driver.Grant, error) {
	return newWaiter(d, t, r).run(ctx, began)
}

// run takes steps until the ticket is granted.
func (w *waiter) run(ctx context.Context, began time.Time) (driver.Grant, error) {
	d := w.d
	defer func() {
		if w.joined != nil {
			<-w.joined
		}
		if w.panicked != nil {
			panic(w.panicked) // in the caller's goroutine
		}
	}()
	for pause := newBackoff(); ; {
		if err := w.lost(); err != nil {
			return driver.Grant{}, err
		}
		w.reconnected = d.conn.Reconnected() // before anything is read
		g, wake, err := w.step(ctx)
		switch {
		case err == nil && wake == nil:
			return g, nil
		case err == nil:
			w.last = nil
			pause.Reset()
			if err := w.sleep(ctx, wake); err != nil {
				return driver.Grant{}, err
			}
			continue
		case ctx.Err() != nil:
			return driver.Grant{}, w.ended(ctx)
		case final(err), errors.Is(err, driver.ErrNotAcquired), w.joined == nil && time.Since(began) > enqueueBound:
			return driver.Grant{}, err
		}
		w.last = err
		if !retry.Sleep(ctx, pause.Next(), d.conn.Closed()) {
			return driver.Grant{}, w.ended(ctx)
		}
	}
}

// errPanicked ends a wait, whose Acquire panics then.
var errPanicked = errors.New("an observer has panicked")

// waiter is a ticket that waits.
type waiter struct {
	d            *Driver
	t            *ticket
	r            driver.Request
	parent, node string

	joined              chan struct{}   // closed when Request.Joined has returned; nil before it is called
	panicked            any             // the value with which Request.Joined has panicked
	broken              chan struct{}   // closed when it has
	marked              bool            // mark was called
	reconnected         <-chan struct{} // closed when the client has another connection
	poll                retry.Backoff   // the intervals without a wake
	ahead               string          // path of the node ahead that is watched; "" if the queue is
	seen                zkconn.State    // the state of its data when the watch was set
	predecessor         string          // ahead, if the release of a holder there grants this ticket
	predecessorReleased bool            // the predecessor was held before
	own                 zkconn.Watch    // on the ticket's node, if there is a predecessor
	gone                <-chan struct{} // closed when the ticket's node was deleted
	last                error           // of the store; nil if it has answered since
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
	// The predecessor was held. So the ticket is granted if its own node is still there: if that
	// was deleted before, the watch on it has fired before the watch on the one ahead.
	if w.predecessorReleased && w.d.conn.Shows(w.own) {
		g, err = w.granted(ctx)
		return g, nil, err
	}
	return w.read(ctx)
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
		if !w.marked && v.awaited(i) {
			w.marked = d.conn.Go(w.mark)
		}
		g, err = w.granted(ctx)
		return g, nil, err
	}
	if !w.r.Wait {
		return g, nil, w.refuse(ctx)
	}
	w.queued()
	set, err := w.watch(ctx, v, i)
	return g, set.C, err
}

// queued calls Request.Joined, once, in a goroutine that run waits for. Joined may take long. If
// permits are returned meanwhile, others wait for the mark of this ticket, see blocker.
func (w *waiter) queued() {
	if w.joined != nil {
		return
	}
	joined := make(chan struct{})
	w.joined, w.broken = joined, make(chan struct{})
	w.d.mu.Lock()
	if w.t.gone == nil {
		w.t.gone = make(chan struct{})
		w.d.watchLater(w.t)
	}
	w.gone = w.t.gone
	w.d.mu.Unlock()
	go func() {
		defer close(joined)
		defer func() {
			if w.panicked = recover(); w.panicked != nil {
				close(w.broken)
			}
		}()
		if w.r.Joined != nil {
			w.r.Joined()
		}
	}()
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
	if errors.Is(err, zk.ErrNoNode) {
		return zkconn.Fired, nil
	}
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
	if !set.HasFired() {
		w.own, err = w.d.conn.WatchNode(ctx, w.t.path)
		if errors.Is(err, zk.ErrNoNode) {
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

// deleted forgets the ticket, since its node is not there.
func (w *waiter) deleted() error {
	w.d.forget(w.t)
	return errRemoved
}

// granted makes the ticket held, if its session is certainly alive. A minimum hold
// begins now, so it needs a new confirmation.
func (w *waiter) granted(ctx context.Context) (driver.Grant, error) {
	if err := w.d.wait(ctx, w.joined); err != nil { // the lease counts from after that
		return driver.Grant{}, err
	}
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

// refuse removes the ticket of a request that does not wait.
func (w *waiter) refuse(ctx context.Context) error {
	w.d.forget(w.t)
	err := w.d.remove(ctx, w.t.path, false)
	if isGone(err) {
		return driver.ErrNotAcquired
	}
	return err
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
			return w.deleted()
		case <-w.broken:
			return errPanicked
		case <-w.t.sess.Gone():
			return w.lost()
		case <-ctx.Done():
			return w.ended(ctx)
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

// ended returns the error at ctx's end: why it ended, and the state of the store.
func (w *waiter) ended(ctx context.Context) error {
	select {
	case <-w.d.conn.Closed():
		return driver.ErrClosed
	default:
	}
	if w.last == nil {
		return w.d.conn.EndError(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), w.last)
}

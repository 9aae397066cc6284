package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// await waits for the grant of a ticket that stands in line.
func (d *Driver) await(ctx context.Context, t *ticket, r driver.Request, began time.Time) (driver.Grant, error) {
	w := &waiter{d: d, t: t, r: r, parent: parentOf(t.path), node: nodeOf(t.path)}
	for delay := retryFirst; ; {
		if err := w.lost(); err != nil {
			return driver.Grant{}, err
		}
		w.back = d.links.back() // before anything is read
		g, wake, err := w.step(ctx)
		switch {
		case err == nil && wake == nil:
			return g, nil
		case err == nil:
			w.last, delay = nil, retryFirst
			if err := w.sleep(ctx, wake); err != nil {
				return driver.Grant{}, err
			}
			continue
		case ctx.Err() != nil:
			return driver.Grant{}, w.ended(ctx)
		case final(err) || errors.Is(err, driver.ErrNotAcquired):
			return driver.Grant{}, err
		case !w.joined && time.Since(began) > patience:
			return driver.Grant{}, err
		}
		w.last = err
		if !d.pause(ctx, delay) {
			return driver.Grant{}, w.ended(ctx)
		}
		delay = min(2*delay, retryMost)
	}
}

// waiter is a ticket that waits.
type waiter struct {
	d            *Driver
	t            *ticket
	r            driver.Request
	parent, node string

	joined  bool
	back    <-chan struct{} // closed when the client has another connection
	pause   time.Duration   // until the next look without a wake
	on      string          // the node ahead that is watched; "": the queue is
	version int32           // … of its data when the watch was set
	ahead   string          // path of the one waited for, if nothing is to wait for once it has held the lock
	headed  bool            // it has held the lock, and released it
	gone    <-chan struct{} // closed when the ticket's node was deleted
	last    error           // of the store, nil when it has answered since
}

// step looks whether the ticket is granted; else wake fires when it is time to
// look again.
func (w *waiter) step(ctx context.Context) (g driver.Grant, wake <-chan zk.Event, err error) {
	if !w.headed {
		return w.look(ctx)
	}
	// What is left to know is whether our own node is there. The watch on it has
	// fired before that on the one ahead, if it has been deleted before.
	if !w.watched() {
		ok, err := call(ctx, w.d, func() (bool, error) { ok, _, err := w.d.conn.Exists(w.t.path); return ok, err })
		switch {
		case err != nil:
			return g, nil, err
		case !ok:
			return g, nil, w.deleted()
		}
	}
	g, err = w.granted(ctx)
	return g, nil, err
}

// look looks at the line: the ticket is granted, or wake fires when it is time
// to look again.
func (w *waiter) look(ctx context.Context) (g driver.Grant, wake <-chan zk.Event, err error) {
	d := w.d
	v, err := d.list(ctx, w.parent)
	if err != nil {
		return g, nil, err
	}
	i := v.index(w.node)
	if i < 0 {
		return g, nil, w.deleted()
	}
	d.setCrowded(w.parent, len(v.entries) > 1)
	if dropped, err := w.dropGhosts(ctx, v); dropped || err != nil {
		return g, again, err // of a line with ghosts nothing can be told
	}
	if v.granted(i) {
		// Also at the first look: who joined behind it before that, and saw it
		// wait, waits for its turn.
		if g, err = w.granted(ctx); err == nil && v.awaited(i) {
			d.background(w.mark)
		}
		return g, nil, err
	}
	if !w.r.Wait {
		return g, nil, w.refuse(ctx)
	}
	w.inLine()
	wake, err = w.watch(ctx, v, i)
	return g, wake, err
}

// inLine tells, once, that the ticket stands in line ungranted.
func (w *waiter) inLine() {
	if w.joined {
		return
	}
	w.joined = true
	w.d.mu.Lock()
	if w.t.gone == nil {
		w.t.gone = make(chan struct{})
		w.t.since = time.Now()
		w.d.watchLater(w.t)
	}
	w.gone = w.t.gone
	w.d.mu.Unlock()
	if w.r.Joined != nil {
		w.r.Joined()
	}
}

// watch sets the one watch that the ticket needs.
func (w *waiter) watch(ctx context.Context, v *view, i int) (<-chan zk.Event, error) {
	w.ahead, w.on = "", ""
	b := v.blocker(i)
	if b < 0 {
		return w.d.watchLine(ctx, w.parent, v)
	}
	ahead := v.entries[b]
	path := w.parent + "/" + ahead.node
	turn := w.t.hold.Shared && ahead.shared // it may mark its node
	s, err := w.d.watchNode(ctx, path, turn)
	w.on, w.version = path, s.version
	wake := s.fired
	if err != nil || ahead.shared || w.r.Shared && w.r.Limit > 0 {
		return wake, err
	}
	// Behind an exclusive ticket that has held the lock nothing else is to wait
	// for, and it tells so (see passing): then only our own node needs a watch.
	w.ahead = path
	if len(wake) == 0 && !w.watched() {
		err = w.d.watchOwn(ctx, w.t)
		if errors.Is(err, driver.ErrLost) {
			err = w.deleted()
		}
	}
	return wake, err
}

// Watches are not all that a waiter relies on: the client may lose one on its way
// from one connection to the next. It sets its watches again in several requests,
// each of which asks for events since the last answer that the client has had:
// if an answer comes first, or the connection ends between two of them, an event
// before that is missed. So a waiter looks again on each new connection (the
// deletion of a node cannot be missed like that, but its change, and that of the
// queue). And because a user's connection may drop the event that tells of
// that, or tell none, it looks now and then.
const (
	lookFirst = 5 * time.Second
	lookMost  = 5 * time.Minute
)

// nextLook returns how long to sleep without a wake: longer each time.
func (w *waiter) nextLook() time.Duration {
	w.pause = min(max(2*w.pause, lookFirst), lookMost)
	return w.pause - rand.N(w.pause/4)
}

// unchanged reports whether the node ahead is as it was when its watch was set.
// It costs one short read where a look lists the queue.
func (w *waiter) unchanged(ctx context.Context) bool {
	if w.on == "" {
		return false
	}
	st, err := call(ctx, w.d, func() (*zk.Stat, error) {
		ok, st, err := w.d.conn.Exists(w.on)
		if !ok {
			st = nil
		}
		return st, err
	})
	return err != nil || st != nil && st.Version == w.version
}

// watched reports whether a watch shows that the ticket's own node is there:
// one that was set on the present connection, see links.
func (w *waiter) watched() bool {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return w.t.watch != nil && !fired(w.t.watch) && w.d.links.same(w.t.link)
}

// woken is told what has happened to the node of the ticket ahead.
func (w *waiter) woken(ev zk.Event) {
	w.headed = ev.Type == zk.EventNodeDataChanged && ev.Path == w.ahead
}

// deleted takes the ticket off the books, since its node is not there.
func (w *waiter) deleted() error {
	w.d.forget(w.t)
	return errRemoved
}

// granted makes the ticket held, when its session is sure to be alive. A minimum
// hold begins now, with a sign of life.
func (w *waiter) granted(ctx context.Context) (driver.Grant, error) {
	if w.r.MinHold > 0 {
		if err := w.d.prove(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
	asked, err := w.d.alive(ctx, w.t.sess, w.r.TTL)
	if err != nil {
		return driver.Grant{}, err
	}
	g := w.d.grant(w.t, w.r, asked)
	return g, w.lost()
}

// mark wakes the ticket that waits for this one's turn.
func (w *waiter) mark() {
	d, ctx := w.d, context.Background()
	data := newRecord(w.r, w.t.sess.lease())
	for delay := retryFirst; !w.t.sess.over(); delay = min(2*delay, retryMost) {
		_, err := write(ctx, d, func() (*zk.Stat, error) { return d.conn.Set(w.t.path, data, -1) })
		if err == nil || final(err) || !d.pause(ctx, delay) {
			return
		}
	}
}

// refuse takes the ticket of a request that does not wait out of the line.
func (w *waiter) refuse(ctx context.Context) error {
	w.d.forget(w.t)
	err := w.d.drop(ctx, w.t.path, plain)
	if err == nil || errors.Is(err, driver.ErrLost) {
		return driver.ErrNotAcquired
	}
	return err
}

// dropGhosts removes nodes of this ticket that came of a create which was
// carried out after all.
func (w *waiter) dropGhosts(ctx context.Context, v *view) (dropped bool, err error) {
	for _, e := range v.entries {
		if e.id == w.r.ID && e.node != w.node {
			if err := w.d.drop(ctx, w.parent+"/"+e.node, plain); err != nil && !errors.Is(err, driver.ErrLost) {
				return dropped, err
			}
			dropped = true
		}
	}
	return dropped, nil
}

// sleep waits for a wake, or for the end of the ticket or of the wait.
func (w *waiter) sleep(ctx context.Context, wake <-chan zk.Event) error {
	look := time.NewTimer(w.nextLook())
	defer look.Stop()
	for {
		select {
		case ev := <-wake:
			w.woken(ev)
			return nil
		case <-w.back:
			return nil
		case <-look.C:
			if !w.unchanged(ctx) {
				return nil
			}
			look.Reset(w.nextLook())
		case <-w.gone:
			return w.deleted()
		case <-w.t.sess.gone:
			return w.lost()
		case <-ctx.Done():
			return w.ended(ctx)
		case <-w.d.closing:
			return driver.ErrClosed
		}
	}
}

// lost tells whether the ticket has gone with its session.
func (w *waiter) lost() error {
	if w.d.session(); w.t.sess.over() {
		return errExpired
	}
	return nil
}

// ended is the error at ctx's end: why it ended, and the state of the store.
func (w *waiter) ended(ctx context.Context) error {
	select {
	case <-w.d.closing:
		return driver.ErrClosed
	default:
	}
	if w.last == nil && w.d.conn.State() != zk.StateHasSession {
		w.last = w.d.offline()
	}
	if w.last == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), w.last)
}

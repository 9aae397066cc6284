package etcd

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
)

// waitFor waits until a ticket that stands in line is granted.
func (d *Driver) waitFor(ctx context.Context, t *ticket, r driver.Request) (driver.Grant, error) {
	if r.Joined != nil {
		r.Joined()
	}
	select {
	case <-t.ended:
		return d.grantOf(ctx, t)
	case <-ctx.Done():
		return driver.Grant{}, d.stopped(ctx)
	case <-d.ctx.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

// grantOf is the grant of a ticket that is held, or ErrLost. The lease counts
// from its last renewal.
func (d *Driver) grantOf(ctx context.Context, t *ticket) (driver.Grant, error) {
	if err := d.fresh(ctx, t); err != nil {
		return driver.Grant{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t.state != held {
		return driver.Grant{}, driver.ErrLost
	}
	return driver.Grant{Token: uint64(t.rev), Asked: t.lease.sent}, nil
}

// wait makes a ticket a waiter: its lease is kept alive and its line watched.
// With mu held.
func (d *Driver) wait(t *ticket) {
	ln := t.line
	t.state = waiting
	t.ended = make(chan struct{})
	if ln.waiters == nil {
		ln.waiters = make(map[int64]*ticket)
	}
	ln.waiters[t.rev] = t
	d.keep(t.lease)
	if ln.watch == nil {
		ln.watch = newWatch(ln)
		d.spawnLocked(ln.watch.run)
	}
	ln.watch.idle.Stop()
}

// rest is called when a waiter has left: the watch stays for a while, since
// who has waited for a name is likely to wait for it again. With mu held.
func (ln *line) rest() {
	if len(ln.waiters) == 0 && ln.watch != nil {
		ln.watch.idle.Reset(linger)
	}
}

// settle grants what can be granted. With mu held.
func (ln *line) settle() {
	w := ln.watch
	if w == nil || len(ln.waiters) == 0 {
		return
	}
	limitOf := func(rev int64) int {
		if t := ln.waiters[rev]; t != nil {
			return t.limit
		}
		return 0
	}
	for _, rev := range w.view.granted(limitOf) {
		t := ln.waiters[rev]
		switch {
		case t == nil: // held already, or somebody else's
		case rev <= w.view.snap:
			ln.d.granted(t)
		default: // the first, as far as is known: is it all?
			w.refreshSoon()
			return
		}
	}
}

// watch follows a line while somebody here waits in it.
//
// It watches from now on: a watch that starts at a revision of the past is
// served by the server's catch-up loop, which runs every 100 ms. What
// happened before it began is read afterwards.
//
// It is of deletions only, and of the whole line: a release is one small
// message to each process that waits for the name, whatever the number of its
// waiters, and no request. Following only the one key ahead would spare the
// others the message, and cost each waiter a watch, its cancellation and two
// requests.
type watch struct {
	line *line
	view *view
	kick chan struct{} // read the line
	idle *time.Timer   // ends the watch that nobody needs any more

	ctx    context.Context
	cancel context.CancelFunc
}

// recheck is how often the line of somebody who waits is read in any case. It
// finds out about a connection that is silently dead, when the client does not.
const recheck = 30 * time.Second

func newWatch(ln *line) *watch {
	w := &watch{line: ln, view: newView(), kick: make(chan struct{}, 1)}
	w.ctx, w.cancel = context.WithCancel(clientv3.WithRequireLeader(ln.d.ctx))
	w.idle = time.AfterFunc(linger, w.retire)
	return w
}

// retire ends the watch if nobody waits.
func (w *watch) retire() {
	w.line.d.mu.Lock()
	defer w.line.d.mu.Unlock()
	if len(w.line.waiters) == 0 && w.line.watch == w {
		w.line.watch = nil
		w.line.close()
		w.cancel()
	}
}

// run watches until the watch is retired or the driver closed, through
// every failure.
func (w *watch) run() {
	d := w.line.d
	defer w.idle.Stop()
	defer w.cancel()
	for delay := retryFirst; w.ctx.Err() == nil; delay = min(2*delay, retryMost) {
		began := time.Now()
		err := w.follow()
		if w.ctx.Err() != nil {
			return
		}
		d.heard(err)
		if err == nil || time.Since(began) > time.Second {
			delay = retryFirst
		}
		if !d.pause(w.ctx, delay) {
			return
		}
		// A plain request renews an authentication that has run out; a watch
		// does not.
		if err != nil {
			_, _ = w.refresh()
		}
	}
}

// errWatchEnded is a watch that the client has given up.
var errWatchEnded = errors.New("etcd: the watch has ended")

// follow is one watch, until it fails. It returns nil for one that is to be
// made anew.
func (w *watch) follow() error {
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	changes := w.line.d.client.Watch(ctx, w.line.prefix,
		clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	again := time.NewTicker(recheck)
	defer again.Stop()
	for {
		select {
		case resp, ok := <-changes:
			if !ok {
				return errWatchEnded
			}
			if err := resp.Err(); err != nil {
				return err
			}
			if err := w.take(resp); err != nil {
				return err
			}
		case <-w.kick:
			if _, err := w.refresh(); err != nil {
				return err
			}
		case <-again.C:
			if stale, err := w.refresh(); stale || err != nil {
				return err
			}
		}
	}
}

// take applies a message of the watch.
func (w *watch) take(resp clientv3.WatchResponse) error {
	d := w.line.d
	d.mu.Lock()
	if resp.Created {
		complete := w.view.snap == resp.Header.Revision
		d.mu.Unlock()
		if complete { // nothing has happened since the line was read
			return nil
		}
		_, err := w.refresh()
		return err
	}
	for _, e := range resp.Events {
		d.deleted(w.line, string(e.Kv.Key), e.Kv.ModRevision)
	}
	w.line.settle()
	d.unlock()
	return nil
}

// refreshSoon asks for the line to be read.
func (w *watch) refreshSoon() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// refresh reads the line. It reports whether that told of departures that the
// watch had not: then it is behind.
func (w *watch) refresh() (stale bool, err error) {
	d, ln := w.line.d, w.line
	select {
	case <-w.kick:
	default:
	}
	d.mu.Lock()
	w.view.begin()
	before := w.view.snap
	d.mu.Unlock()

	ctx, cancel := context.WithTimeout(w.ctx, answerBound)
	defer cancel()
	resp, err := d.commit(ctx, nil, lineOps(ln.prefix, 0), nil)

	d.mu.Lock()
	defer d.unlock()
	defer w.view.end()
	d.storeErr = err
	if err != nil {
		return false, err
	}
	at := resp.Header.Revision
	if at < before { // the store has been restored from a backup
		w.view.reset()
	}
	known := len(w.view.places)
	w.view.merge(ln.prefix, at,
		resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs)
	stale = len(w.view.places) < known
	for _, t := range ln.waiters {
		if (t.rev <= at || at < before) && !w.view.has(t.key, t.rev) {
			d.lose(t, errDeleted)
		}
	}
	ln.settle()
	return stale, nil
}

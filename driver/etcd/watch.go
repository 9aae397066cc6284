package etcd

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// watch follows a line while somebody here waits in it. It watches for the
// deletion of what blocks the first of the waiters:
//
//   - near the front of the line, of any ticket in it;
//   - further back, only of the ticket directly ahead or, for a reader, of the
//     nearest exclusive one, so that a release is not told to everybody, however
//     many wait;
//   - of a permit that waits for others, all shared tickets: any may make room;
//   - where several shared tickets wait here, the whole line.
//
// The other waiters of this process are behind the first, and are looked
// after when it is granted.
//
// It watches from now on: a watch that starts at a revision of the past is
// served by the server's catch-up loop, which runs every 100 ms. What
// happened before it began is read afterwards. When what was watched is gone
// the line is read again, unless it was all that was ahead: a process that takes
// turns with the same others finds the same ticket ahead of its own each
// time, since keys are used again, and keeps its watch.
type watch struct {
	line *line
	view *view
	kick chan struct{} // look at the line again
	idle *time.Timer   // ends the watch that nobody needs any more

	ctx    context.Context
	cancel context.CancelFunc

	// What follows is the goroutine's.
	bound   time.Duration // of a request
	aimed   aim
	changes clientv3.WatchChan // nil: none is open
	close   context.CancelFunc // of changes
	since   int64              // deletions later than this are told
	gone    bool               // what was watched is gone: the line must be read
	doubt   *time.Timer        // until the line is read in any case
	patient time.Duration      // the interval of doubt
	local   string             // the ticket of this driver that blocks the first waiter
	tired   bool               // it has done so for a while
}

// aim is what to watch for: the deletion of a key, or of any with a prefix.
type aim struct {
	key    string
	prefix bool
}

// A ticket with no more others ahead of it than this has the whole line watched:
// then nothing need be read when one of them leaves.
const nearFront = 16

// The line of somebody who waits is read in any case after a second, and then
// ever less often. That finds out about a connection that is silently dead, when
// the client does not, and about a waiting ticket that was deleted by hand.
const (
	doubtFirst = time.Second
	doubtMost  = 30 * time.Second
)

func newWatch(ln *line) *watch {
	w := &watch{line: ln, view: newView(), kick: make(chan struct{}, 1), close: func() {}, bound: tryBound}
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

// look has the goroutine look at the line again.
func (w *watch) look() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// run watches until the watch is retired or the driver closed, through
// every failure.
func (w *watch) run() {
	d := w.line.d
	defer w.idle.Stop()
	defer w.cancel()
	w.doubt, w.patient = time.NewTimer(doubtFirst), doubtFirst
	defer w.doubt.Stop()
	for delay := retryFirst; w.ctx.Err() == nil; {
		err := w.step()
		if err == nil {
			delay, w.bound = retryFirst, tryBound
			continue
		}
		w.bound = min(2*w.bound, answerBound) // it may be slow
		w.shut()
		if w.ctx.Err() != nil || !d.pause(w.ctx, delay) {
			return
		}
		d.heard(err)
		delay = min(2*delay, retryMost)
		// A plain request renews an authentication that has run out; a watch
		// does not.
		_ = w.read(false)
	}
}

// errWatchEnded is a watch that the client has given up.
var errWatchEnded = errors.New("etcd: the watch has ended")

// step does the next thing: read, watch, or wait for news.
func (w *watch) step() error {
	d := w.line.d
	d.mu.Lock()
	next, waits, known := w.target()
	own := waits && known && !next.prefix && w.line.own(next.key) != nil
	complete := w.since <= w.view.snap
	d.mu.Unlock()
	switch {
	case !waits:
		return w.listen(nil)
	case !known || w.gone:
		w.gone = false
		return w.read(true)
	case own && (w.local != next.key || !w.tired):
		return w.listenPatiently(next.key)
	case w.changes == nil || w.aimed != next:
		return w.open(next)
	case !complete:
		return w.read(true)
	}
	return w.listen(nil)
}

// listenPatiently is for a waiter behind a ticket of this same driver, whose
// release needs no watch. Only if it takes long is it watched for.
func (w *watch) listenPatiently(key string) error {
	w.local, w.tired = key, false
	t := time.NewTimer(lossDelay)
	defer t.Stop()
	return w.listen(t.C)
}

// target returns what blocks the first waiter: nobody may be waiting, or the view
// not be complete enough to know. With Driver.mu held.
func (w *watch) target() (next aim, waits, known bool) {
	ln, v := w.line, w.view
	if len(ln.waiters) == 0 {
		return aim{}, false, false
	}
	nearest := "" // exclusive
	for i, p := range v.places {
		t := ln.waiters[p.rev]
		switch {
		case t == nil:
			if !p.shared {
				nearest = p.key
			}
		case p.rev > v.snap || i == 0:
			return aim{}, true, false
		case i <= nearFront, p.shared && len(ln.waiters) > 1:
			return aim{key: ln.prefix, prefix: true}, true, true
		case !p.shared:
			return aim{key: v.places[i-1].key}, true, true
		case nearest != "":
			return aim{key: nearest}, true, true
		default:
			return aim{key: ln.prefix + sharedClass, prefix: true}, true, true
		}
	}
	return aim{}, true, false
}

// open watches for something else.
func (w *watch) open(next aim) error {
	w.shut()
	d := w.line.d
	ctx, cancel := context.WithCancel(d.onStream(w.ctx))
	opts := []clientv3.OpOption{clientv3.WithFilterPut(), clientv3.WithCreatedNotify()}
	if next.prefix {
		opts = append(opts, clientv3.WithPrefix())
	}
	// A member that hangs must not keep the waiter from watching another one.
	late := time.AfterFunc(w.bound, cancel)
	changes := d.client.Watch(ctx, next.key, opts...)
	w.aimed, w.changes, w.close = next, changes, cancel
	select {
	case resp, ok := <-changes:
		if ok && late.Stop() {
			w.since = resp.Header.Revision
			return resp.Err()
		}
	case <-ctx.Done():
	}
	if w.ctx.Err() != nil {
		return w.ctx.Err()
	}
	d.streams.Add(1)
	return errWatchEnded
}

// onStream is the context of a watch. The client carries all watches whose contexts
// have the same metadata on one stream to one member: another number has it open
// another stream, most likely to another member.
func (d *Driver) onStream(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "locker-stream", strconv.FormatInt(d.streams.Load(), 10))
}

func (w *watch) shut() {
	w.close()
	w.changes, w.aimed = nil, aim{}
}

// listen waits for news, or for enough.
func (w *watch) listen(enough <-chan time.Time) error {
	select {
	case resp, ok := <-w.changes:
		if !ok {
			return errWatchEnded
		}
		if err := resp.Err(); err != nil {
			return err
		}
		w.take(resp)
	case <-w.kick:
	case <-enough:
		w.tired = true
	case <-w.doubt.C:
		w.patient = min(2*w.patient, doubtMost)
		w.doubt.Reset(w.patient)
		return w.recheck()
	case <-w.ctx.Done():
	}
	return nil
}

// take applies a message of the watch. When it watches for one key, others
// that were ahead may have left unnoticed.
func (w *watch) take(resp clientv3.WatchResponse) {
	d := w.line.d
	d.mu.Lock()
	defer d.unlock()
	for _, e := range resp.Events {
		d.deleted(w.line, string(e.Kv.Key), e.Kv.ModRevision)
	}
	w.line.settle()
	w.gone = len(resp.Events) > 0 && !w.aimed.prefix && len(w.line.waiters) > 0
}

// recheck reads the queue in doubt, and makes the watch anew, on another stream, if
// it should have told of something.
func (w *watch) recheck() error {
	d := w.line.d
	d.mu.Lock()
	waits, missed := len(w.line.waiters) > 0, w.missed()
	d.mu.Unlock()
	if !waits {
		return nil
	}
	if err := w.read(false); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.changes != nil && missed() {
		w.shut()
		d.streams.Add(1)
	}
	return nil
}

// missed returns a function that reports whether a ticket that is watched now is
// gone from the view. With Driver.mu held, as for the function.
func (w *watch) missed() func() bool {
	v := w.view
	var watched []place
	for _, p := range v.places[:min(len(v.places), nearFront)] {
		if p.key == w.aimed.key || w.aimed.prefix && strings.HasPrefix(p.key, w.aimed.key) {
			watched = append(watched, p)
		}
	}
	return func() bool {
		return slices.ContainsFunc(watched, func(p place) bool { return !v.has(p.key, p.rev) })
	}
}

// read reads the line. A local read, of the member that answers, is tried
// first, since it need not wait for the log: it will do if it is as new as all
// that is known. One that is older would bring back who has left: a watch
// may tell of a deletion a moment before a read shows it.
func (w *watch) read(local bool) error {
	d, ln := w.line.d, w.line
	d.mu.Lock()
	w.view.begin()
	need := max(w.view.latest, w.since)
	d.mu.Unlock()

	ctx, cancel := context.WithTimeout(w.ctx, w.bound)
	defer cancel()
	resp, err := d.readClasses(ctx, ln.prefix, local)
	if err == nil && local && resp.Header.Revision < need {
		resp, err = d.readClasses(ctx, ln.prefix, false)
	}

	d.mu.Lock()
	defer d.unlock()
	defer w.view.end()
	d.storeErr = err
	if err != nil {
		return err
	}
	w.learn(resp, resp.Header.Revision < need)
	return nil
}

// readClasses reads the keys of a line.
func (d *Driver) readClasses(ctx context.Context, line string, local bool) (*clientv3.TxnResponse, error) {
	var opts []clientv3.OpOption
	if local {
		opts = append(opts, clientv3.WithSerializable())
	}
	return d.commit(ctx, nil, []clientv3.Op{
		classRange(line, exclusiveClass, 0, opts...),
		classRange(line, sharedClass, 0, opts...),
	})
}

// learn takes a line that was read: as new as all that is known, unless the
// store has been restored from a backup. With Driver.mu held.
func (w *watch) learn(resp *clientv3.TxnResponse, restored bool) {
	d, ln, v := w.line.d, w.line, w.view
	at := resp.Header.Revision
	if restored {
		v.reset()
		w.since = 0
	}
	v.merge(ln.prefix, at,
		resp.Responses[0].GetResponseRange().Kvs, resp.Responses[1].GetResponseRange().Kvs)
	for _, t := range ln.waiters {
		if (t.rev <= at || restored) && !v.has(t.key, t.rev) {
			d.lose(t, errDeleted)
		}
	}
	ln.settle()
}

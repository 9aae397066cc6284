package etcd

import (
	"context"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// lossWatch tells holders at once of the end of their tickets: by a break, by
// an operator's hand, or with their lease. It is one watch of the deletions
// under the driver's prefix, for all that the driver holds, and runs while it
// holds a lock that was not released soon: most are, and those need no watch.
// Driver.mu guards it.
type lossWatch struct {
	running bool
	timer   *time.Timer // set while there is a lock that may become one of these
}

// A lock that is held for longer than this is watched; the watch is looked over
// as often as lossLinger, and ends when nothing is held.
const (
	lossDelay  = 200 * time.Millisecond
	lossLinger = 10 * time.Second
)

// held notes that a lock is held. With mu held.
func (w *lossWatch) held(d *Driver) {
	if d.tell == nil || !d.push || w.running || w.timer != nil || d.closed {
		return
	}
	w.timer = time.AfterFunc(lossDelay, d.beginLossWatch)
}

// beginLossWatch starts the watch if a lock has been held for long enough.
func (d *Driver) beginLossWatch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	w := &d.losses
	w.timer = nil
	if d.closed || w.running {
		return
	}
	long, short := false, false
	for _, t := range d.tickets {
		if t.state == held {
			short = true
			if time.Since(t.since) >= lossDelay {
				long = true
				break
			}
		}
	}
	switch {
	case long:
		w.running = d.spawn(d.watchLosses)
	case short:
		w.timer = time.AfterFunc(lossDelay, d.beginLossWatch)
	}
}

// stopLossWatch is called by Close.
func (d *Driver) stopLossWatch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.losses.timer != nil {
		d.losses.timer.Stop()
	}
}

func (d *Driver) watchLosses() {
	for delay := retryFirst; d.followLosses(); delay = min(2*delay, retryMost) {
		if !d.pause(d.ctx, delay) {
			return
		}
	}
}

// followLosses is one watch; it reports whether to begin another.
func (d *Driver) followLosses() (again bool) {
	ctx, cancel := context.WithCancel(d.onStream(clientv3.WithRequireLeader(d.ctx)))
	defer cancel()
	late := time.AfterFunc(tryBound, cancel)
	changes := d.client.Watch(ctx, d.prefix+"/",
		clientv3.WithPrefix(), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	if !late.Stop() {
		d.streams.Add(1)
		return true
	}
	ticker := time.NewTicker(lossLinger)
	defer ticker.Stop()
	for {
		select {
		case resp, ok := <-changes:
			if !ok || resp.Err() != nil {
				return true
			}
			if resp.Created {
				if d.verifyHeld(ctx) != nil {
					return true
				}
				continue
			}
			d.takeLosses(resp)
		case <-ticker.C:
			if d.endLossWatch() {
				return false
			}
		case <-d.ctx.Done():
			return false
		}
	}
}

func (d *Driver) takeLosses(resp clientv3.WatchResponse) {
	d.mu.Lock()
	defer d.unlock()
	for _, e := range resp.Events {
		key := string(e.Kv.Key)
		if !strings.Contains(key, d.instance) {
			continue
		}
		if name, _, ok := d.splitKey(key); ok && d.lines[name] != nil {
			d.deleted(d.lines[name], key, e.Kv.ModRevision)
		}
	}
}

// endLossWatch ends the watch when nothing is held.
func (d *Driver) endLossWatch() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, t := range d.tickets {
		if t.state == held {
			return false
		}
	}
	d.losses.running = false
	return true
}

// verifyHeld finds out what was lost before the watch began.
func (d *Driver) verifyHeld(ctx context.Context) error {
	var rs []renewal
	d.mu.Lock()
	for _, t := range d.tickets {
		if t.state == held {
			rs = append(rs, renewal{t: t})
		}
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerBound)
	defer cancel()
	for some := range slices.Chunk(rs, manyTickets) {
		there, err := d.present(ctx, nil, some)
		if err != nil {
			return err
		}
		d.mu.Lock()
		for _, r := range some {
			if r.t.state == held && !there(r.t) {
				d.lose(r.t, errDeleted)
			}
		}
		d.unlock()
	}
	return nil
}

package zookeeper

import (
	"context"
	"maps"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// orphan is a ticket whose create was given up without an answer. The request may
// still be in flight, on a connection that the server has not closed yet. It may create
// a node that no ticket of the driver has and that lives as long as the session. So the
// queue is searched for the node until that cannot happen any more.
type orphan struct {
	parent string
	until  time.Time
}

func (d *Driver) orphan(parent, id string) {
	crash := d.Bounds(0).Crash // by then the server has closed the connection
	d.mu.Lock()
	defer d.mu.Unlock()
	d.orphans[id] = orphan{parent: parent, until: time.Now().Add(crash)}
	if !d.searching {
		d.searching = d.conn.Go(d.removeOrphans)
	}
}

// takeOrphan is called before a create for the same ticket, whose node is no orphan. It
// reports whether there may be an orphan.
func (d *Driver) takeOrphan(id string) (was bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was = d.orphans[id]
	delete(d.orphans, id)
	return was
}

// removeOrphans is the background task that removes orphans.
func (d *Driver) removeOrphans(ctx context.Context) {
	for retry.Sleep(ctx, taskPause, nil) {
		d.mu.Lock()
		left := maps.Clone(d.orphans)
		d.searching = len(left) > 0
		d.mu.Unlock()
		if len(left) == 0 {
			return
		}
		for id, o := range left {
			d.removeOrphan(ctx, id, o)
		}
	}
}

// removeOrphan removes the node of a late create. The last search begins after the time
// in which such a create may arrive.
func (d *Driver) removeOrphan(ctx context.Context, id string, o orphan) {
	ctx, cancel := context.WithTimeout(ctx, taskBound)
	defer cancel()
	last := time.Now().After(o.until)
	v, err := d.syncAndList(ctx, o.parent)
	if err != nil {
		return
	}
	for _, e := range v.entries {
		path := o.parent + "/" + e.node
		if e.id == id && d.isOrphan(id, path) && !isGone(d.remove(ctx, path, false)) {
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if last && d.orphans[id] == o {
		delete(d.orphans, id)
	}
}

// isOrphan reports whether the node at path belongs to an orphan, and not to a ticket of
// the same ID.
func (d *Driver) isOrphan(id, path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.orphans[id]
	t := d.tickets[id]
	return is && (t == nil || t.path != path)
}

package zookeeper

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/lockerproject/locker/driver"
)

// orphan is a ticket whose create was given up without an answer. The request may
// still be in flight, on a connection that the server has not closed yet, and create a
// node that nobody knows of and that lives as long as the session. So the queue is
// searched for it until that cannot happen any more.
type orphan struct {
	parent string
	until  time.Time
}

// orphanInterval is how often the queues are searched.
const orphanInterval = time.Second

func (d *Driver) orphan(parent, id string) {
	crash := d.Bounds(0).Crash // by then the server has closed the connection
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tasks.orphans[id] = orphan{parent: parent, until: time.Now().Add(crash)}
	if !d.tasks.removing {
		d.tasks.removing = d.spawn(d.removeOrphans)
	}
}

// takeOrphan is called before a create for the same ticket: its node is not an orphan.
// It reports whether there may be one.
func (d *Driver) takeOrphan(id string) (was bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was = d.tasks.orphans[id]
	delete(d.tasks.orphans, id)
	return was
}

// removeOrphans is the background task.
func (d *Driver) removeOrphans() {
	for d.pause(context.Background(), orphanInterval) {
		d.mu.Lock()
		left := maps.Clone(d.tasks.orphans)
		if len(left) == 0 {
			d.tasks.removing = false
		}
		d.mu.Unlock()
		if len(left) == 0 {
			return
		}
		for id, o := range left {
			d.removeOrphan(id, o)
		}
	}
}

// removeOrphan removes what a late create has made. The last search begins after the
// time in which one may arrive.
func (d *Driver) removeOrphan(id string, o orphan) {
	ctx, cancel := context.WithTimeout(context.Background(), taskBound)
	defer cancel()
	last := time.Now().After(o.until)
	if d.sync(ctx) != nil {
		return
	}
	v, err := d.list(ctx, o.parent)
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
	if last && d.tasks.orphans[id] == o {
		delete(d.tasks.orphans, id)
	}
}

// isGone reports whether a removal has left no node.
func isGone(err error) bool { return err == nil || errors.Is(err, driver.ErrLost) }

// isOrphan reports whether the node at path belongs to an orphan, and not to a ticket of
// the same ID.
func (d *Driver) isOrphan(id, path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.tasks.orphans[id]
	t := d.tickets[id]
	return is && (t == nil || t.path != path)
}

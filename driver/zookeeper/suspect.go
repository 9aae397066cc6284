package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// suspect is a ticket whose create was given up without an answer. The
// request may be under way still, on a connection that the server has not
// closed yet, and make a node that nobody knows of and that lives as long as the
// session. So the line is looked at until that cannot happen any more.
type suspect struct {
	parent string
	until  time.Time
}

// searchEvery is how often suspects are looked for.
const searchEvery = time.Second

func (d *Driver) suspect(parent, id string) {
	crash := d.Bounds(0).Crash // by then the server has closed the connection
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chores.suspects[id] = suspect{parent: parent, until: time.Now().Add(crash)}
	if !d.chores.searching {
		d.chores.searching = d.spawn(d.searchAll)
	}
}

// clearOfSuspicion is called before a create, whose node must not be taken for
// a late one.
func (d *Driver) clearOfSuspicion(id string) (was bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was = d.chores.suspects[id]
	delete(d.chores.suspects, id)
	return was
}

func (d *Driver) searchAll() {
	for d.pause(context.Background(), searchEvery) {
		d.mu.Lock()
		left := make(map[string]suspect, len(d.chores.suspects))
		for id, s := range d.chores.suspects {
			left[id] = s
		}
		if len(left) == 0 {
			d.chores.searching = false
		}
		d.mu.Unlock()
		if len(left) == 0 {
			return
		}
		for id, s := range left {
			d.search(id, s)
		}
	}
}

// search removes what a late create has made. The suspicion ends with a look
// after its time.
func (d *Driver) search(id string, s suspect) {
	ctx, cancel := context.WithTimeout(context.Background(), choreBound)
	defer cancel()
	late := time.Now().After(s.until)
	if d.sync(ctx) != nil {
		return
	}
	v, err := d.list(ctx, s.parent)
	if err != nil {
		return
	}
	for _, e := range v.entries {
		path := s.parent + "/" + e.node
		if e.id == id && d.isGhost(id, path) && !dropped(d.drop(ctx, path, plain)) {
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if late && d.chores.suspects[id] == s {
		delete(d.chores.suspects, id)
	}
}

func dropped(err error) bool { return err == nil || errors.Is(err, driver.ErrLost) }

// isGhost reports whether a suspect's node is not that of a ticket.
func (d *Driver) isGhost(id, path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.chores.suspects[id]
	t := d.tickets[id]
	return is && (t == nil || t.path != path)
}

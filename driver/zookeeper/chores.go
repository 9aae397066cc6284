package zookeeper

import (
	"time"
)

// chores are what is done in the background. Each has a goroutine while there
// is something to do. Driver.mu guards them.
type chores struct {
	closed    bool
	unwatched []*ticket // without a watch on their node
	watching  bool
	suspects  map[string]suspect // by ticket ID
	searching bool
	empty     map[string]struct{} // parents that may have been left empty
	tidying   bool
}

// spawn runs f in the background, unless the driver is being closed. With mu
// held.
func (d *Driver) spawn(f func()) bool {
	if d.chores.closed {
		return false
	}
	d.work.Go(f)
	return true
}

func (d *Driver) background(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spawn(f)
}

// choreBound bounds one request of a chore.
const choreBound = 10 * time.Second

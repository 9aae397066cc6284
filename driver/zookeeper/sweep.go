package zookeeper

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// tasks are the background tasks. Each has a goroutine while there is something to do.
// Driver.mu guards them.
type tasks struct {
	closed    bool
	unwatched []*ticket // without a watch on their node
	watching  bool
	orphans   map[string]orphan // by ticket ID
	removing  bool
	empty     map[string]struct{} // parents whose queue may be empty
	emptying  bool
}

// taskBound bounds one request of a background task.
const taskBound = 10 * time.Second

// spawn runs f in the background, unless the driver is being closed. With mu held.
func (d *Driver) spawn(f func()) bool {
	if d.tasks.closed {
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

// removeEmpty removes the node of a name whose queue is empty. The server refuses if a
// ticket has been queued meanwhile.
func (d *Driver) removeEmpty(ctx context.Context, parent string) {
	d.expectOthers(parent, false)
	_, err := call(ctx, d, func() (struct{}, error) { return struct{}{}, d.conn.Delete(parent, -1) })
	if err != nil && !answered(err) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.removeLater(parent)
	}
}

// removeDelay is how long after the end of a session the nodes of its names are removed.
const removeDelay = time.Second

// removeLater removes the node of a name soon if its queue is empty: the server removes
// the tickets of a session that has ended, and leaves their parents. With mu held.
func (d *Driver) removeLater(parent string) {
	d.tasks.empty[parent] = struct{}{}
	if !d.tasks.emptying {
		d.tasks.emptying = d.spawn(d.removeAllEmpty)
	}
}

func (d *Driver) removeAllEmpty() {
	for d.pause(context.Background(), removeDelay) {
		d.mu.Lock()
		parents := make([]string, 0, len(d.tasks.empty))
		for p := range d.tasks.empty {
			parents = append(parents, p)
		}
		if len(parents) == 0 {
			d.tasks.emptying = false
		}
		clear(d.tasks.empty)
		d.mu.Unlock()
		if len(parents) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), taskBound)
		_, _ = each(ctx, d, parents, func(p string) (struct{}, error) {
			d.removeEmpty(ctx, p)
			return struct{}{}, nil
		})
		cancel()
	}
}

// Processes that end together leave the nodes of names that nobody uses again. One of
// all drivers on a base sweeps those, so often that they are gone a minute after their
// session at the latest: a driver sweeps after sweepEvery and up to half of that
// more, unless another has in the last half of it.
const (
	sweepFirst = 10 * time.Second
	sweepEvery = 24 * time.Second
)

func (d *Driver) sweepAfter(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delay += rand.N(delay / 2)
	d.sweeper = time.AfterFunc(delay, func() {
		d.background(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = d.sweep(ctx, time.Now()) // the next sweep does what this one could not
			d.sweepAfter(sweepEvery)
		})
	})
	if d.tasks.closed {
		d.sweeper.Stop()
	}
}

// sweep removes the nodes of names whose queue is empty, unless that was done lately:
// the data of the base say when. A wrong clock makes for too many sweeps or too few,
// and nothing else.
func (d *Driver) sweep(ctx context.Context, now time.Time) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	won, err := call(ctx, d, func() (bool, error) {
		data, st, err := d.conn.Get(d.base)
		if err != nil {
			return false, err
		}
		if last, err := strconv.ParseInt(string(data), 10, 64); err == nil && now.Sub(time.UnixMilli(last)).Abs() < sweepEvery/2 {
			return false, nil
		}
		_, err = d.conn.Set(d.base, strconv.AppendInt(nil, now.UnixMilli(), 10), st.Version)
		return err == nil, err
	})
	if err != nil || !won {
		return err
	}
	nodes, err := d.nameNodes(ctx)
	if err != nil {
		return err
	}
	nodes = d.withoutTickets(nodes)
	empty, err := d.emptyOnes(ctx, nodes)
	if err != nil {
		return err
	}
	for i, node := range nodes {
		if _, ok := decode(node); ok && empty[i] {
			d.removeEmpty(ctx, d.base+"/"+node)
		}
	}
	return nil
}

// withoutTickets returns the nodes of the names in which this driver has no ticket.
func (d *Driver) withoutTickets(nodes []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ours := make(map[string]bool, len(d.tickets))
	for _, t := range d.tickets {
		ours[nodeOf(parentOf(t.path))] = true
	}
	return slices.DeleteFunc(nodes, func(node string) bool { return ours[node] })
}

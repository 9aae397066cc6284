package zookeeper

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/internal/retry"
)

// removeEmpty removes the node of a name whose queue is empty. The server refuses if a
// ticket has been queued meanwhile. If the server does not answer, a sweep removes it.
func (d *Driver) removeEmpty(ctx context.Context, parent string) {
	d.expectOthers(parent, false)
	_, _ = d.conn.Multi(ctx, &zk.DeleteRequest{Path: parent, Version: -1})
}

// The server removes the tickets of a session that has ended, but not the nodes of their names.
// The next ticket that leaves a queue does, and one of all drivers on a base sweeps those names
// that nobody uses again, so often that they are gone a minute after their session at the
// latest. A driver sweeps after sweepEvery and up to half of that more, unless a driver has
// swept less than half of sweepEvery ago.
const (
	sweepFirst = 10 * time.Second
	sweepEvery = 24 * time.Second
)

// sweepAll is the background task that sweeps.
func (d *Driver) sweepAll(ctx context.Context) {
	for delay := sweepFirst; retry.Sleep(ctx, delay+rand.N(delay/2), nil); delay = sweepEvery {
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		_ = d.sweep(bounded, time.Now()) // the next sweep does what this one could not do
		cancel()
	}
}

// sweep removes the nodes of names whose queue is empty, unless that was done lately. Others
// may use the prefix, too: the node of a name is persistent and has no data.
func (d *Driver) sweep(ctx context.Context, now time.Time) error {
	if due, err := d.sweepIsDue(ctx, now); !due || err != nil {
		return err
	}
	nodes, err := d.nameNodes(ctx)
	if err != nil {
		return err
	}
	nodes = d.withoutTickets(nodes)
	stats, err := d.statsOf(ctx, nodes)
	if err != nil {
		return err
	}
	empty := nodes[:0]
	for i, st := range stats {
		_, ok := decode(nodes[i])
		if ok && st != nil && st.NumChildren == 0 && st.DataLength == 0 && st.EphemeralOwner == 0 {
			empty = append(empty, nodes[i])
		}
	}
	_, _ = each(empty, func(node string) (struct{}, error) {
		d.removeEmpty(ctx, d.base+"/"+node)
		return struct{}{}, nil
	})
	return nil
}

// sweepIsDue reports whether to sweep now. It writes the version again, whose node then
// shows when the last sweep was. A wrong clock only causes too many sweeps or too few.
func (d *Driver) sweepIsDue(ctx context.Context, now time.Time) (bool, error) {
	path := d.base + "/" + protocolNode
	data, st, err := d.conn.Get(ctx, path)
	if err != nil || now.Sub(time.UnixMilli(st.Mtime)).Abs() < sweepEvery/2 {
		return false, err
	}
	_, err = d.conn.Multi(ctx, &zk.SetDataRequest{Path: path, Data: data, Version: st.Version})
	return err == nil, err
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

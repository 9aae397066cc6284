package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
)

// view is a queue as one listing shows it, in order. It is read only.
type view struct {
	entries  []entry
	children zkconn.State // of the parent
	version  int32        // of the parent's data
	absent   bool         // the parent is not there
	witness  string       // a child of the parent, a ticket or not; empty: there is none
}

// index returns the position of the ticket of that node, or -1 if it is not queued.
func (v *view) index(node string) int {
	return slices.IndexFunc(v.entries, func(e entry) bool { return e.node == node })
}

// granted reports whether entry i is granted, by the rule of driver.Grantable.
func (v *view) granted(i int) bool {
	if !v.entries[i].shared {
		return i == 0 // the rule for exclusive tickets, which most are
	}
	return driver.Grantable(v.tickets(i+1), i)
}

// admits reports whether a ticket that was queued now would be granted.
func (v *view) admits(r driver.Request) bool {
	n := len(v.entries)
	return driver.Grantable(append(v.tickets(n), r.Ticket(0)), n)
}

// tickets returns the first n tickets for the grant rule.
func (v *view) tickets(n int) []driver.Ticket {
	tickets := make([]driver.Ticket, n, n+1)
	for i, e := range v.entries[:n] {
		tickets[i] = driver.Ticket{Shared: e.shared, Limit: e.limit}
	}
	return tickets
}

// blocker returns the ticket whose end, or grant, entry i must wait for. Entry i cannot
// be granted before, so one watch on that ticket misses nothing, and does not wake i too
// early. -1 says that the end of any of several tickets may be enough.
//
//   - An exclusive ticket waits for its predecessor.
//   - A shared ticket with exclusive ones ahead waits for the nearest of these.
//   - A shared ticket with limit L, with L or more shared ones ahead, waits for the
//     nearest of these that is not granted and whose limit is L or more: that one is
//     granted first, and then marks its node. The first waiter has no such ticket ahead,
//     and waits for any to leave.
func (v *view) blocker(i int) int {
	t := v.entries[i]
	if !t.shared {
		return i - 1
	}
	for j := i - 1; j >= 0; j-- {
		if !v.entries[j].shared {
			return j
		}
	}
	for j := i - 1; j >= 0; j-- {
		if e := v.entries[j]; e.limit >= t.limit && j >= e.limit {
			return j
		}
	}
	return -1
}

// awaited reports whether a later ticket may be waiting for i to mark its node, see
// blocker.
func (v *view) awaited(i int) bool {
	return slices.ContainsFunc(v.entries[i+1:], func(e entry) bool { return e.limit > 0 && e.limit <= v.entries[i].limit })
}

// newView orders a listing.
func newView(entries []entry) *view {
	slices.SortFunc(entries, inOrder)
	return &view{entries: entries}
}

// inOrder orders entries by their sequences or, if they have one, by their czxid. Two
// entries have the same sequence only if somebody has chosen it: their order is the same
// for all clients, in whatever order the server lists them.
func inOrder(a, b entry) int {
	return cmp.Or(cmp.Compare(a.czxid, b.czxid), cmp.Compare(a.seq, b.seq), cmp.Compare(a.node, b.node))
}

// Sequences order a queue up to this one. The server's counter has 31 bits. Beyond, it
// becomes negative, or does not change, depending on the server's version. So a queue with a
// ticket beyond is ordered by czxid.
const lastSequence = math.MaxInt32 - 1<<20

// beyond reports whether the sequence does not order the entry.
func (e entry) beyond() bool { return e.seq < 0 || e.seq > lastSequence }

// arrange makes a view of a listing. Foreign nodes are left out.
func (d *Driver) arrange(ctx context.Context, parent string, nodes []string) (*view, error) {
	entries := make([]entry, 0, len(nodes))
	for _, n := range nodes {
		if e, ok := parseEntry(n); ok {
			entries = append(entries, e)
		}
	}
	if !slices.ContainsFunc(entries, entry.beyond) {
		return newView(entries), nil
	}
	entries, err := each(entries, func(e entry) (entry, error) {
		st, err := d.conn.Exists(ctx, parent+"/"+e.node)
		if st == nil {
			return entry{}, err // it has left since
		}
		e.czxid = st.Czxid
		return e, nil
	})
	if err != nil {
		return nil, err
	}
	return newView(slices.DeleteFunc(entries, func(e entry) bool { return e.node == "" })), nil
}

// A listing is shared by callers that want one of the same queue at the same time. A caller that
// comes when it has been sent gets the next one. So a thousand tickets that are queued together
// cost a few listings.
type listing struct {
	sent bool
	done chan struct{}
	view *view
	err  error
}

// syncAndList is list after the server has caught up with all earlier changes.
func (d *Driver) syncAndList(ctx context.Context, parent string) (*view, error) {
	if err := d.conn.Sync(ctx); err != nil {
		return nil, err
	}
	return d.list(ctx, parent)
}

// list returns the queue below parent, at or after the time of the call.
func (d *Driver) list(ctx context.Context, parent string) (*view, error) {
	d.mu.Lock()
	l := d.listings[parent]
	if before := l; l == nil || l.sent {
		l = &listing{done: make(chan struct{})}
		if d.conn.Go(func(ctx context.Context) { d.runListing(ctx, parent, l, before) }) {
			d.listings[parent] = l
		}
	}
	d.mu.Unlock()
	if err := d.wait(ctx, l.done); err != nil {
		return nil, err
	}
	return l.view, l.err
}

// runListing runs l when the one before has ended.
func (d *Driver) runListing(ctx context.Context, parent string, l, before *listing) {
	if before != nil {
		<-before.done
	}
	d.mu.Lock()
	l.sent = true
	d.mu.Unlock()
	l.view, l.err = d.listOnce(ctx, parent)
	close(l.done)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listings[parent] == l {
		delete(d.listings, parent)
	}
}

func (d *Driver) listOnce(ctx context.Context, parent string) (*view, error) {
	nodes, st, err := d.conn.Children(ctx, parent)
	if errors.Is(err, zk.ErrNoNode) {
		return &view{absent: true}, nil
	}
	if err != nil {
		return nil, err
	}
	v, err := d.arrange(ctx, parent, nodes)
	if err == nil {
		v.version, v.children = st.Version, zkconn.ChildrenOf(st)
		if len(nodes) > 0 {
			v.witness = nodes[0]
		}
	}
	return v, err
}

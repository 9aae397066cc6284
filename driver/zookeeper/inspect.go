package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// placed is an entry with its node's data.
type placed struct {
	entry
	rec  record
	stat *zk.Stat // nil: it has left the line since
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	line, err := d.readLine(ctx, name)
	if err != nil {
		return nil, err
	}
	tickets := make([]driver.Ticket, len(line))
	for i, p := range line {
		tickets[i] = driver.Ticket{
			ID: p.id, Token: uint64(p.stat.Czxid), Owner: p.rec.Owner, Note: p.rec.Note,
			Shared: p.shared, Limit: p.limit, Since: time.UnixMilli(p.stat.Ctime),
		}
	}
	for i, held := range driver.Granted(tickets) {
		if held {
			tickets[i].Held = true
			tickets[i].Remaining = d.remaining(line[i])
			if line[i].stat.Version > 0 { // it marked its node when it was granted
				tickets[i].Since = time.UnixMilli(line[i].stat.Mtime)
			}
		}
	}
	return tickets, nil
}

// remaining is the rest of a holder's lease: of a fixed one of ours we know it,
// and else how long, at least, the ticket outlives its holder's last sign of life.
func (d *Driver) remaining(p placed) time.Duration {
	lease := time.Duration(p.rec.Lease) * time.Millisecond
	if p.rec.Fixed > 0 {
		lease = min(lease, time.Duration(p.rec.Fixed)*time.Millisecond)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tickets[p.id]; t != nil && t.held && !t.until.IsZero() {
		return max(0, time.Until(t.until))
	}
	return lease
}

// readLine returns the live line with the data of each ticket.
func (d *Driver) readLine(ctx context.Context, name string) ([]placed, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	if err := d.sync(ctx); err != nil {
		return nil, err
	}
	parent := d.parent(name)
	v, err := d.list(ctx, parent)
	if err != nil {
		return nil, err
	}
	line, err := each(ctx, d, v.entries, func(e entry) (placed, error) {
		data, st, err := d.conn.Get(parent + "/" + e.node)
		if errors.Is(err, zk.ErrNoNode) {
			return placed{}, nil
		}
		return placed{entry: e, rec: parseRecord(data), stat: st}, err
	})
	if err != nil {
		return nil, err
	}
	there := line[:0]
	for _, p := range line {
		if p.stat != nil {
			there = append(there, p)
		}
	}
	return there, nil
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	if err := d.ready(ctx); err != nil {
		return nil, err
	}
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	if err := d.sync(ctx); err != nil {
		return nil, err
	}
	return d.occupied(ctx, false)
}

// occupied returns the names whose line is not empty; with sweep it removes
// the nodes of the others.
func (d *Driver) occupied(ctx context.Context, sweep bool) ([]string, error) {
	nodes, err := call(ctx, d, func() ([]string, error) {
		nodes, _, err := d.conn.Children(d.base)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		return nodes, err
	})
	if err != nil {
		return nil, err
	}
	if sweep {
		nodes = d.others(nodes)
	}
	empty, err := each(ctx, d, nodes, func(node string) (bool, error) {
		ok, st, err := d.conn.Exists(d.base + "/" + node)
		return !ok || st.NumChildren == 0, err
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for i, node := range nodes {
		name, ok := decode(node)
		switch {
		case !ok: // not ours
		case !empty[i]:
			names = append(names, name)
		case sweep:
			d.tidy(ctx, d.base+"/"+node)
		}
	}
	return names, nil
}

// others returns the names' nodes in which this driver has no ticket: the others
// are not empty.
func (d *Driver) others(nodes []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	ours := make(map[string]bool, len(d.tickets))
	for _, t := range d.tickets {
		ours[nodeOf(parentOf(t.path))] = true
	}
	return slices.DeleteFunc(nodes, func(node string) bool { return ours[node] })
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	line, err := d.readLine(ctx, name)
	if err != nil {
		return err
	}
	for _, p := range line {
		if uint64(p.stat.Czxid) == token {
			return d.drop(ctx, d.parent(name)+"/"+p.node, plain)
		}
	}
	return fmt.Errorf("%w: no ticket %d is queued", driver.ErrLost, token)
}

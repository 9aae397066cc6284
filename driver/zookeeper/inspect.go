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

// inspected is an entry with its node's data.
type inspected struct {
	entry
	rec  record
	stat *zk.Stat // nil if it has left the queue since
}

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	queue, err := d.readQueue(ctx, name)
	if err != nil {
		return nil, err
	}
	tickets := make([]driver.Ticket, len(queue))
	for i, e := range queue {
		tickets[i] = driver.Ticket{
			ID: e.id, Token: uint64(e.stat.Czxid), Owner: e.rec.Owner, Note: e.rec.Note,
			Shared: e.shared, Limit: e.limit, Since: time.UnixMilli(e.stat.Ctime),
		}
	}
	for i, held := range driver.Granted(tickets) {
		if held {
			tickets[i].Held = true
			tickets[i].Remaining = d.remaining(queue[i])
			if queue[i].stat.Version > 0 { // it marked its node when it was granted
				tickets[i].Since = time.UnixMilli(queue[i].stat.Mtime)
			}
		}
	}
	return tickets, nil
}

// remaining returns the rest of a holder's lease if it is a fixed lease of this driver.
// For others it returns for how long, at least, the ticket outlives its holder's last
// heartbeat.
func (d *Driver) remaining(e inspected) time.Duration {
	ms := e.rec.Lease
	if e.rec.Fixed > 0 {
		ms = min(ms, e.rec.Fixed)
	}
	lease := time.Duration(max(0, min(ms, mostMillis))) * time.Millisecond
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tickets[e.id]; t != nil && t.held && !t.until.IsZero() {
		return max(0, time.Until(t.until))
	}
	return lease
}

// readQueue returns the live queue with the data of each ticket.
func (d *Driver) readQueue(ctx context.Context, name string) ([]inspected, error) {
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	parent := d.parent(name)
	v, err := d.syncAndList(ctx, parent)
	if err != nil {
		return nil, err
	}
	queue, err := each(v.entries, func(e entry) (inspected, error) {
		data, st, err := d.conn.Get(ctx, parent+"/"+e.node)
		if errors.Is(err, zk.ErrNoNode) {
			return inspected{}, nil
		}
		return inspected{entry: e, rec: parseRecord(data), stat: st}, err
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(queue, func(e inspected) bool { return e.stat == nil }), nil
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	if err := d.conn.Sync(ctx); err != nil {
		return nil, err
	}
	nodes, err := d.nameNodes(ctx)
	if err != nil {
		return nil, err
	}
	stats, err := d.statsOf(ctx, nodes)
	if err != nil {
		return nil, err
	}
	var names []string
	for i, node := range nodes {
		if name, ok := decode(node); ok && stats[i] != nil && stats[i].NumChildren > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// nameNodes returns the children of the base: the nodes of names, and perhaps foreign
// ones.
func (d *Driver) nameNodes(ctx context.Context) ([]string, error) {
	nodes, _, err := d.conn.Children(ctx, d.base)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	return nodes, err
}

// statsOf returns what the server says of each of the nodes, nil for one that is not there.
func (d *Driver) statsOf(ctx context.Context, nodes []string) ([]*zk.Stat, error) {
	return each(nodes, func(node string) (*zk.Stat, error) { return d.conn.Exists(ctx, d.base+"/"+node) })
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if err := d.conn.Confirm(ctx); err != nil {
		return err
	}
	queue, err := d.readQueue(ctx, name)
	if err != nil {
		return err
	}
	for _, e := range queue {
		if uint64(e.stat.Czxid) == token {
			return d.remove(ctx, d.parent(name)+"/"+e.node, false)
		}
	}
	return fmt.Errorf("%w: no ticket %d is queued", driver.ErrLost, token)
}

// Ping implements driver.Pinger with a transaction that creates a node and deletes it.
func (d *Driver) Ping(ctx context.Context) error {
	err := d.agree(ctx, false)
	if err == nil {
		err = d.tryRights(ctx)
	}
	if errors.Is(err, zk.ErrNoNode) {
		if _, err = d.readVersion(ctx, true); err == nil {
			err = d.tryRights(ctx)
		}
	}
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("the ACL of %s lacks a right of this client: it has to read it, and to create, write and delete nodes below: %w", d.base, err)
	}
	return err
}

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) { return d.conn.ServerVersion(ctx) }

package consul

import (
	"context"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// readLine reads the line of a name as it is now.
func (d *Driver) readLine(ctx context.Context, name string) ([]entry, error) {
	pairs, _, err := d.store.list(ctx, d.keys.line(name))
	if err != nil {
		return nil, err
	}
	return parseLine(pairs)
}

// Inspect implements driver.Driver. Consul does not tell how old a session's
// last renewal is: of leases of other processes Remaining is the whole TTL. The
// times are by the clocks of those who joined.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.agree(ctx, false); err != nil {
		return nil, failure(ctx, err)
	}
	line, err := d.readLine(ctx, name)
	if err != nil {
		return nil, failure(ctx, err)
	}
	ts := tickets(line)
	for i, granted := range driver.Granted(ts) {
		if granted {
			ts[i].Held = true
			ts[i].Remaining = time.Duration(line[i].TTL) * time.Millisecond
			d.refine(&ts[i])
		}
	}
	return ts, nil
}

// refine adds what this driver knows of a held ticket of its own.
func (d *Driver) refine(ticket *driver.Ticket) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[ticket.ID]
	if t == nil || !t.held {
		return
	}
	ticket.Since = time.Unix(0, t.since)
	ticket.Remaining = max(time.Until(t.s.asked.Add(t.s.ttl)), time.Millisecond)
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.agree(ctx, false); err != nil {
		return nil, failure(ctx, err)
	}
	q := d.store.read(ctx)
	q.RequireConsistent = true
	keys, _, err := d.store.client.KV().Keys(d.keys.prefix+"/", "", q)
	if err != nil {
		return nil, failure(ctx, err)
	}
	var names []string
	for _, key := range keys {
		if name, ok := d.keys.nameOf(key); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

package consul

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// version is that of what the store holds (wire.go), which all who use the same
// locks have to share. It goes up with each change after which older programs and
// newer ones would not exclude each other.
const version = "2"

func newCheck(k keyspace, version string) *protocol.Check {
	return protocol.New(version, "the key "+k.protocol(), "delete that key (consul kv delete)")
}

// agree makes sure, once, that all who use these locks keep them in the same way.
// With write it says how, where nobody has said so yet.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (found string, err error) {
		err = persist(ctx, func() error {
			found, err = d.readVersion(ctx, write)
			return err
		})
		return found, err
	})
}

func (d *Driver) readVersion(ctx context.Context, write bool) (string, error) {
	key := d.store.keys.protocol()
	for {
		p, _, err := d.store.get(d.store.exact(ctx), key)
		if err != nil || p == nil && !write {
			return "", err
		}
		if p != nil {
			return string(p.Value), nil
		}
		// Index 0: only if it is not there.
		_, err = d.store.commit(ctx, op{kvOp{Verb: api.KVCAS, Key: key, Value: []byte(d.protocol.Own())}})
		var refused *rollback
		if err == nil {
			return d.protocol.Own(), nil
		}
		if !errors.As(err, &refused) { // somebody else was faster
			return "", err
		}
	}
}

// Inspect implements driver.Driver. Consul does not tell how old a session's
// last renewal is: of leases of other processes Remaining is the whole TTL. The
// times are by the clocks of those who queued.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.agree(ctx, false); err != nil {
		return nil, failure(ctx, err)
	}
	queue, _, err := d.store.queue(ctx, name)
	if err != nil {
		return nil, failure(ctx, err)
	}
	ts := tickets(queue)
	for i, granted := range driver.Granted(ts) {
		if granted {
			ts[i].Held = true
			ts[i].Remaining = time.Duration(queue[i].TTL) * time.Millisecond
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
	keys, _, err := d.store.client.KV().Keys(d.store.keys.queues(), "", d.store.exact(ctx))
	if err != nil {
		return nil, failure(ctx, err)
	}
	var names []string
	for _, key := range keys {
		if name, ok := d.store.keys.nameOf(key); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Break implements driver.Breaker. The ticket's driver is notified by a key of its
// session. A key that another program has locked in the queue is removed, too.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.agree(ctx, false); err != nil {
		return failure(ctx, err)
	}
	for {
		pairs, _, err := d.store.list(d.store.exact(ctx), d.store.keys.queue(name))
		if err != nil {
			return failure(ctx, err)
		}
		i := slices.IndexFunc(pairs, func(p pair) bool { return p.CreateIndex == token && p.Session != "" })
		if i < 0 {
			return driver.ErrLost
		}
		err = d.breakPair(ctx, pairs[i])
		var refused *rollback
		switch {
		case errors.As(err, &refused): // it has gone or was changed meanwhile
			continue
		case err != nil:
			return failure(ctx, err)
		}
		d.left(name, token)
		return nil
	}
}

func (d *Driver) breakPair(ctx context.Context, p pair) error {
	ops := []op{indexOp(p), keyOp(api.KVDelete, p.Key)}
	var v value
	if json.Unmarshal(p.Value, &v) == nil && v.ID != "" {
		ops = append(ops, lockOp(d.store.keys.notice(p.Session), p.Session, []byte("broken "+v.ID)))
	}
	_, err := d.store.commit(ctx, ops...)
	return err
}

// Ping implements driver.Pinger. It renews a session, or creates one, which shows
// the right to sessions, and sends a transaction that is refused because it
// names a session that does not exist, which shows that the leader commits and
// the right to write keys.
func (d *Driver) Ping(ctx context.Context) error {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.agree(ctx, false); err != nil {
		return failure(ctx, err)
	}
	k := kind{ttl: d.opts.minTTL}
	d.mu.Lock()
	for s := range d.sessions {
		if !s.retired && !s.minHold {
			k = s.kind
		}
	}
	d.mu.Unlock()
	probe, err := d.attach(ctx, &ticket{name: "ping", id: "ping " + time.Now().String()}, k, time.Now())
	if err != nil {
		return failure(ctx, err)
	}
	d.detach(probe)
	_, err = d.store.commit(ctx, lockOp(d.store.keys.queue("ping")+noSession, noSession, nil))
	var refused *rollback
	if err == nil || errors.As(err, &refused) {
		return nil
	}
	return failure(ctx, err)
}

const noSession = "00000000-0000-0000-0000-000000000000"

// ServerVersion implements driver.ServerVersioner: that of the agent. Where rules
// apply it takes the right to read the agent.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	ctx, done := d.bind(ctx)
	defer done()
	var self struct {
		Config struct{ Version string }
	}
	if _, err := d.store.client.Raw().Query("/v1/agent/self", &self, d.store.read(ctx)); err != nil {
		return "", failure(ctx, err)
	}
	return "Consul " + self.Config.Version, nil
}

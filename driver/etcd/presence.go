package etcd

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// manyTickets is from where on it is cheaper to ask for all the tickets of a
// lease than for some of them by key. A transaction has at most 128 parts.
const manyTickets = 100

// present finds out which of the tickets are queued.
func (d *Driver) present(ctx context.Context, l *lease, rs []renewal) (there func(*ticket) bool, err error) {
	if len(rs) <= manyTickets {
		return d.queued(ctx, rs)
	}
	listed, err := d.presentOn(ctx, l)
	if err != nil {
		return nil, err
	}
	// The list may come from a member that was deposed and has not noticed, so
	// what it lacks is looked for again by a read that the log has ordered.
	missing := slices.DeleteFunc(slices.Clone(rs), func(r renewal) bool { return listed(r.t) })
	var again []func(*ticket) bool
	for some := range slices.Chunk(missing, manyTickets) {
		there, err := d.queued(ctx, some)
		if err != nil {
			return nil, err
		}
		again = append(again, there)
	}
	return func(t *ticket) bool {
		return listed(t) || slices.ContainsFunc(again, func(there func(*ticket) bool) bool { return there(t) })
	}, nil
}

// queued finds out, by a linearizable read, which of at most manyTickets tickets are
// queued.
func (d *Driver) queued(ctx context.Context, rs []renewal) (there func(*ticket) bool, err error) {
	ops := make([]clientv3.Op, len(rs))
	for i, r := range rs {
		ops[i] = clientv3.OpGet(r.t.key, clientv3.WithKeysOnly())
	}
	resp, err := d.commit(ctx, nil, ops)
	if err != nil {
		return nil, err
	}
	revs := make(map[string]int64, len(rs))
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			revs[string(kv.Key)] = kv.CreateRevision
		}
	}
	return func(t *ticket) bool { return revs[t.key] == t.rev }, nil
}

// presentOn lists the tickets on a lease. A key there is that of the
// ticket: it is not put again before this driver has learned of its end. The
// list is not linearizable.
func (d *Driver) presentOn(ctx context.Context, l *lease) (there func(*ticket) bool, err error) {
	resp, err := d.client.TimeToLive(clientv3.WithRequireLeader(ctx), l.id, clientv3.WithAttachedKeys())
	if err != nil {
		return nil, err
	}
	keys := make(map[string]struct{}, len(resp.Keys))
	for _, key := range resp.Keys {
		keys[string(key)] = struct{}{}
	}
	return func(t *ticket) bool { _, ok := keys[t.key]; return ok }, nil
}

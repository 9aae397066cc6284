package etcd

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver. Remaining is in whole seconds, rounded
// down; Since is the time of joining, for a holder too, by the clock of the
// client that joined.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	kvs, tickets, err := d.readLine(ctx, name)
	if err != nil {
		return nil, err
	}
	var leases []clientv3.LeaseID
	for i, ok := range driver.Granted(tickets) {
		tickets[i].Held = ok
		if ok && !slices.Contains(leases, clientv3.LeaseID(kvs[i].Lease)) {
			leases = append(leases, clientv3.LeaseID(kvs[i].Lease))
		}
	}
	left, err := d.remaining(ctx, leases)
	if err != nil {
		return nil, err
	}
	for i := range tickets {
		if tickets[i].Held {
			tickets[i].Remaining = left[clientv3.LeaseID(kvs[i].Lease)]
		}
	}
	return tickets, nil
}

// readLine reads a line with its values, in order.
func (d *Driver) readLine(ctx context.Context, name string) ([]*mvccpb.KeyValue, []driver.Ticket, error) {
	line := d.linePrefix(name)
	resp, err := d.get(ctx, line, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, nil, err
	}
	kvs := slices.DeleteFunc(resp.Kvs, func(kv *mvccpb.KeyValue) bool {
		_, _, ok := d.splitKey(string(kv.Key))
		return !ok
	})
	tickets := make([]driver.Ticket, len(kvs))
	for i, kv := range kvs {
		tickets[i] = decodeTicket(line, kv)
	}
	return kvs, tickets, nil
}

func (d *Driver) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if d.ctx.Err() != nil {
		return nil, driver.ErrClosed
	}
	resp, err := d.client.Get(clientv3.WithRequireLeader(ctx), key, opts...)
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	return resp, nil
}

// remaining asks for the rest of each lease.
func (d *Driver) remaining(ctx context.Context, leases []clientv3.LeaseID) (map[clientv3.LeaseID]time.Duration, error) {
	var (
		mu     sync.Mutex
		left   = make(map[clientv3.LeaseID]time.Duration, len(leases))
		failed error
	)
	each(leases, func(id clientv3.LeaseID) {
		resp, err := d.client.TimeToLive(clientv3.WithRequireLeader(ctx), id)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			failed = d.explain(ctx, err)
			return
		}
		left[id] = max(time.Duration(resp.TTL)*time.Second, time.Millisecond) // it stands in line yet
	})
	return left, failed
}

// lookUp finds a ticket that is not of this driver's making, by its ID.
func (d *Driver) lookUp(ctx context.Context, h driver.Hold) (kv *mvccpb.KeyValue, isHeld bool, err error) {
	kvs, tickets, err := d.readLine(ctx, h.Name)
	if err != nil {
		return nil, false, err
	}
	for i, t := range tickets {
		if t.ID == h.ID && (h.Token == 0 || h.Token == t.Token) {
			return kvs[i], driver.Grantable(tickets, i), nil
		}
	}
	return nil, false, driver.ErrLost
}

// List implements driver.Lister. It reads the keys of all tickets, a page at a
// time.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	const page = 10000
	first := d.prefix + "/"
	end := clientv3.GetPrefixRangeEnd(first)
	var names []string
	for {
		resp, err := d.get(ctx, first, clientv3.WithRange(end), clientv3.WithKeysOnly(), clientv3.WithLimit(page))
		if err != nil {
			return nil, err
		}
		for _, kv := range resp.Kvs {
			if name, _, ok := d.splitKey(string(kv.Key)); ok {
				names = append(names, name)
			}
		}
		if !resp.More || len(resp.Kvs) == 0 {
			slices.Sort(names)
			return slices.Compact(names), nil
		}
		first = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if err := d.agree(ctx, false); err != nil {
		return err
	}
	line := d.linePrefix(name)
	resp, err := d.get(ctx, line, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithMinCreateRev(int64(token)), clientv3.WithMaxCreateRev(int64(token)))
	if err != nil {
		return err
	}
	for _, kv := range resp.Kvs {
		if _, _, ok := d.splitKey(string(kv.Key)); ok && uint64(kv.CreateRevision) == token {
			return d.deleteKey(ctx, string(kv.Key), kv.CreateRevision)
		}
	}
	return driver.ErrLost
}

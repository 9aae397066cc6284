package etcd

import (
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Held is a lock as its holder knows it; *locker.Lock is one.
type Held interface {
	Name() string
	Token() uint64
}

// Guard is a condition that holds as long as the ticket of a lock stands in its
// line. Put it into the transactions that the lock protects, in the same etcd:
//
//	client.Txn(ctx).If(d.Guard(lock)).Then(clientv3.OpPut(…)).Commit()
//
// Then no write of a holder that has lost its lock can ever be committed, however
// late it is: etcd itself compares, at the moment of the write. It is the
// strictest form of fencing, for what is kept in etcd.
//
// The lock must have been acquired through this Driver. For one that was not,
// or that is known to be lost or released, the condition never holds. Package
// fence/etcdfence has a call for the whole transaction, which says fence.ErrStale.
func (d *Driver) Guard(k Held) clientv3.Cmp {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := d.linePrefix(k.Name()) // never exists: it names no ticket
	if ln := d.lines[k.Name()]; ln != nil {
		for _, t := range ln.slots {
			if t != nil && t.state == held && uint64(t.rev) == k.Token() {
				key = t.key
			}
		}
	}
	return standing(key, max(int64(k.Token()), 1))
}

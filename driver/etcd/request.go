package etcd

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// bounded is the context of a request that the driver makes on its own account:
// it ends with Close, and a member without a leader refuses it instead of
// letting it wait.
func (d *Driver) bounded(bound time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(d.ctx), bound)
}

// commit sends one transaction.
func (d *Driver) commit(ctx context.Context, cmps []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	return d.client.Txn(clientv3.WithRequireLeader(ctx)).If(cmps...).Then(ops...).Commit()
}

// asking is the context of a request that the caller of an acquisition or a
// release waits for. If the client knows several members, one without a leader is
// to refuse the request, for another may do better. A client that knows only one
// has nobody else to ask: it waits for the election.
func (d *Driver) asking(ctx context.Context) context.Context {
	if d.several.Load() {
		return clientv3.WithRequireLeader(ctx)
	}
	return ctx
}

// survey notes how many members the client knows: that may change.
func (d *Driver) survey() { d.several.Store(len(d.client.Endpoints()) > 1) }

// detached is a context with the values of another, which ends with the driver.
type detached struct {
	context.Context
	values context.Context //nolint:containedctx // for its values only
}

func (c detached) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v // the driver's own end, for contexts below
	}
	return c.values.Value(key)
}

// outlive is the context of a request that goes on when ctx has ended, for
// putGrace: leave is to be called at ctx's end, done when the request is over.
func (d *Driver) outlive(ctx context.Context) (longer context.Context, leave, done func()) {
	longer, cancel := context.WithCancel(detached{d.ctx, ctx})
	return d.asking(longer), func() { time.AfterFunc(putGrace, cancel) }, cancel
}

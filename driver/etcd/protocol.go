package etcd

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// version is that of what the store holds (wire.go), which all who use the same
// locks have to share. It goes up with each change after which older programs and
// newer ones would not exclude each other.
const version = "1"

// protocolKey is the key that says which version is in use; it is no ticket's.
func protocolKey(prefix string) string { return prefix + "/#protocol" }

func newCheck(o options) *protocol.Check {
	return protocol.New(o.version, "the key "+protocolKey(o.prefix), "delete that key (etcdctl del)")
}

// agree makes sure, once, that all who use these locks keep them in the same way.
// With write it says how, where nobody has said so yet.
func (d *Driver) agree(ctx context.Context, write bool) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		key := protocolKey(d.prefix)
		txn := d.client.Txn(d.asking(ctx)).Then(clientv3.OpGet(key))
		if write {
			txn = d.client.Txn(d.asking(ctx)).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, d.protocol.Own()), clientv3.OpGet(key)).Else(clientv3.OpGet(key))
		}
		resp, err := txn.Commit()
		if err != nil {
			return "", d.explain(ctx, err)
		}
		kvs := resp.Responses[len(resp.Responses)-1].GetResponseRange().Kvs
		if len(kvs) == 0 {
			return "", nil
		}
		return string(kvs[0].Value), nil
	})
}

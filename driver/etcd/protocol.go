package etcd

import (
	"context"
	"errors"

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
	return d.protocol.Do(ctx, func(ctx context.Context) (found string, err error) {
		err = d.insist(ctx, func(ctx context.Context) error {
			try, cancel := context.WithTimeout(ctx, tryBound)
			defer cancel()
			found, err = d.readVersion(try, write)
			if err != nil && ctx.Err() == nil && try.Err() != nil {
				err = errNoAnswer
			}
			return err
		})
		if errors.Is(err, errNoAnswer) {
			err = d.silence() // which knows why
		}
		if err != nil {
			return "", d.explain(ctx, err)
		}
		return found, nil
	})
}

// readVersion writes by a transaction that fails where somebody was faster.
func (d *Driver) readVersion(ctx context.Context, write bool) (string, error) {
	key := protocolKey(d.prefix)
	for {
		resp, err := d.client.Get(ctx, key)
		switch {
		case err != nil:
			return "", err
		case len(resp.Kvs) > 0:
			return string(resp.Kvs[0].Value), nil
		case !write:
			return "", nil
		}
		none := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
		if _, err := d.client.Txn(ctx).If(none).Then(clientv3.OpPut(key, d.protocol.Own())).Commit(); err != nil {
			return "", err
		}
	}
}

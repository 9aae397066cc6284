package consul

import (
	"context"
	"errors"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver/internal/protocol"
)

// version is that of what the store holds (wire.go), which all who use the same
// locks have to share. It goes up with each change after which older programs and
// newer ones would not exclude each other.
const version = "1"

// protocolKey is the key that says which version is in use. It outlives all sessions.
func (k keyspace) protocolKey() string { return k.prefix + "/" + internal + "/protocol" }

func newCheck(k keyspace, version string) *protocol.Check {
	return protocol.New(version, "the key "+k.protocolKey(), "delete that key (consul kv delete)")
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
	key := d.keys.protocolKey()
	for {
		p, err := d.store.get(ctx, key)
		if err != nil || p == nil && !write {
			return "", err
		}
		if p != nil {
			return string(p.Value), nil
		}
		// Index 0: only if it is not there.
		err = d.store.do(ctx, op{kvOp{Verb: api.KVCAS, Key: key, Value: []byte(d.protocol.Own())}})
		var refused *rollback
		if err == nil {
			return d.protocol.Own(), nil
		}
		if !errors.As(err, &refused) { // somebody else was faster
			return "", err
		}
	}
}

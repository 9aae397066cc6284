package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver/internal/protocol"
)

// version is that of what the store holds (wire.go), which all who use the same
// locks have to share. It goes up with each change after which older programs and
// newer ones would not exclude each other.
const version = "1"

// protocolNode is the node below the base that says which version is in use. No name
// is encoded like it, see encode.
const protocolNode = "%protocol"

func newCheck(base, version string) *protocol.Check {
	return protocol.New(version, "the node "+base+"/"+protocolNode, "delete that node")
}

// agree makes sure, once, that all who use these locks keep them in the same way.
// With write it says how, where nobody has said so yet.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		return call(ctx, d, func() (string, error) { return d.readVersion(write) })
	})
}

func (d *Driver) readVersion(write bool) (string, error) {
	path := d.base + "/" + protocolNode
	for {
		found, _, err := d.conn.Get(path)
		switch {
		case err == nil:
			return string(found), nil
		case !errors.Is(err, zk.ErrNoNode):
			return "", err
		case !write:
			return "", nil
		}
		_, err = d.conn.Create(path, []byte(d.protocol.Own()), 0, d.acl)
		if errors.Is(err, zk.ErrNoNode) {
			err = d.createPath(d.base)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", err
		}
	}
}

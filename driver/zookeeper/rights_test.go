package zookeeper_test

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// checkedConn asks for the data of a node instead of whether it is there, so the server wants the right to read it, as newer
// servers do for both.
type checkedConn struct {
	net.Conn
	node string
}

func (c *checkedConn) Write(b []byte) (int, error) {
	const exists, getData = 3, 4
	path := append(binary.BigEndian.AppendUint32(nil, uint32(len(c.node))), c.node...)
	if len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == exists && bytes.HasPrefix(b[12:], path) {
		b = slices.Clone(b)
		binary.BigEndian.PutUint32(b[8:], getData)
	}
	return c.Conn.Write(b)
}

// TestPathNotReadable: the client may not read a node of the path to its prefix, nor create nodes beside it. The server refuses to
// say whether it is there, so it is, and the prefix is created below it.
func TestPathNotReadable(t *testing.T) {
	t.Parallel()
	ctx, other := ctxFor(t, 20*time.Second), admin(t)
	root := "/t-" + rand.Text()
	for _, node := range []struct {
		path   string
		rights int32
	}{{root, zk.PermAll}, {root + "/app", zk.PermAll &^ zk.PermRead}} {
		if _, err := other.Create(node.path, []byte{}, 0, zk.WorldACL(node.rights)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := other.SetACL(root, zk.WorldACL(zk.PermRead), -1); err != nil {
		t.Fatal(err)
	}
	conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, session, zk.WithLogInfo(false), zk.WithLogger(quiet{}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			c, err := net.DialTimeout(network, address, timeout)
			return &checkedConn{c, root + "/app"}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(root+"/app/locks")))
	t.Cleanup(func() { _ = d.Close() })
	r := request("x", "held-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
}

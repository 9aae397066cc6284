package zookeeper_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed/versions"
)

func TestProtocolVersion(t *testing.T) {
	t.Parallel()
	root := base(storeURL(t))
	path := root + "/%protocol"
	c := admin(t)
	versions.Prove(t, versions.Store{
		Open: func(t *testing.T, other bool) *locker.Client {
			t.Helper()
			opts := []zookeeper.Option{zookeeper.WithPrefix(root)}
			if other {
				opts = append(opts, zookeeper.WithVersion("2"))
			}
			_, d := own(t, 10*time.Second, opts...)
			l := locker.New(d)
			t.Cleanup(func() { _ = l.Close() })
			return l
		},
		Get: func() string {
			data, _, err := c.Get(path)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				t.Fatal(err)
			}
			return string(data)
		},
		Set: func(version string) {
			if version == "" {
				if err := c.Delete(path, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
					t.Fatal(err)
				}
				return
			}
			for i := 1; i <= len(path); i++ {
				if i < len(path) && path[i] != '/' {
					continue
				}
				if _, err := c.Create(path[:i], []byte(version), 0, zk.WorldACL(zk.PermAll)); err != nil && !errors.Is(err, zk.ErrNodeExists) {
					t.Fatal(err)
				}
			}
		},
		Where: path,
	})
}

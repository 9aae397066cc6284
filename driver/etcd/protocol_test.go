package etcd_test

import (
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/versions"
)

func TestProtocolVersion(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := randomPrefix()
	key := prefix + "/#protocol"
	c := newClient(t, srv.Addr())
	versions.Prove(t, versions.Store{
		Open: func(t *testing.T, other bool) *locker.Client {
			t.Helper()
			opts := []etcd.Option{etcd.WithPrefix(prefix)}
			if other {
				opts = append(opts, etcd.WithVersion("2"))
			}
			return newLocker(t, newDriver(t, newClient(t, srv.Addr()), opts...))
		},
		Get: func() string {
			resp, err := c.Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if len(resp.Kvs) == 0 {
				return ""
			}
			return string(resp.Kvs[0].Value)
		},
		Set: func(version string) {
			_, err := c.Put(t.Context(), key, version)
			if version == "" {
				_, err = c.Delete(t.Context(), key)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Where: key,
	})
}

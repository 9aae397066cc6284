package consul_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/versions"
)

func TestProtocolVersion(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	prefix := fmt.Sprintf("t%016x", rand.Uint64())
	key := prefix + "/~/protocol"
	c := newClient(t, srv.Addr())
	versions.Prove(t, versions.Store{
		Open: func(t *testing.T, other bool) *locker.Client {
			t.Helper()
			opts := []consul.Option{consul.WithPrefix(prefix)}
			if other {
				opts = append(opts, consul.WithVersion("1"))
			}
			d, err := consul.New(newClient(t, srv.Addr()), opts...)
			if err != nil {
				t.Fatal(err)
			}
			return newLocker(t, d)
		},
		Get: func() string {
			p, _, err := c.KV().Get(key, &api.QueryOptions{RequireConsistent: true})
			if err != nil {
				t.Fatal(err)
			}
			if p == nil {
				return ""
			}
			return string(p.Value)
		},
		Set: func(version string) {
			_, err := c.KV().Put(&api.KVPair{Key: key, Value: []byte(version)}, nil)
			if version == "" {
				_, err = c.KV().Delete(key, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		Where: key,
	})
}

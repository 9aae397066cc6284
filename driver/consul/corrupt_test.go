package consul_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// A key of a queue that a session locks, and whose value no program of ours has written, is an error that names it.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	admin := newClient(t, srv.Addr())
	for what, value := range map[string]string{
		"value": "garbage", "no value": "", "null": "null", "limit": `{"id":"id","shared":true,"limit":-7}`, "lease": `{"id":"id","ttl_ms":9223372036854775807}`,
	} {
		t.Run(what, func(t *testing.T) {
			l := newLocker(t, first(counted(t, srv.Addr())))
			key := prefixOf(t) + "/~queue/" + strings.ReplaceAll(what, " ", "=20") + "/9c3e-0"
			lockForeign(t, admin, key)
			if _, err := admin.KV().Put(&api.KVPair{Key: key, Value: []byte(value)}, nil); err != nil {
				t.Fatal(err)
			}
			corrupttest.NotGranted(t, l, what, key)
			if _, err := admin.KV().Delete(key, nil); err != nil {
				t.Fatal(err)
			}
			release(t, acquire(t, l, what))
		})
	}
}

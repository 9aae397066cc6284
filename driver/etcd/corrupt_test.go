package etcd_test

import (
	"testing"

	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// A key of a queue whose value or name no program of ours has written is queued all the same, and can be broken.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	admin := newClient(t, srv.Addr())
	for what, kv := range map[string][2]string{
		"value":         {"x1f-0", "garbage"},
		"no value":      {"x1f-0", ""},
		"limit":         {"s1f-0", `{"id":"id","limit":-7}`},
		"session":       {"xgarbage", `{"id":"id"}`},
		"class alone":   {"x", `{"id":"id"}`},
		"types":         {"x1f-0", `{"id":7,"since":"never"}`},
		"shared, bytes": {"s\xff\x00", "\xff"},
	} {
		t.Run(what, func(t *testing.T) {
			prefix := randomPrefix()
			l := newLocker(t, newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix)))
			key := prefix + "/a#" + kv[0]
			if _, err := admin.Put(t.Context(), key, kv[1]); err != nil {
				t.Fatal(err)
			}
			corrupttest.NotGranted(t, l, "a", key)
			q, err := l.Inspect(t.Context(), "a")
			if err != nil || len(q.Tickets) != 1 {
				t.Fatalf("the queue is %+v, %v", q, err)
			}
			if err := l.Break(t.Context(), "a", q.Tickets[0].Token); err != nil {
				t.Fatal(err)
			}
			k, err := l.TryAcquire(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

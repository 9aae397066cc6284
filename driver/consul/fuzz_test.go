package consul

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

// FuzzKey: a key names a lock only if it is the key of one of its tickets, and is then in its queue and in no other.
func FuzzKey(f *testing.F) {
	f.Fuzz(func(t *testing.T, key, name string) {
		k := keyspace{prefix: "locker"}
		if got, ok := k.nameOf(key); ok && (got == "" || !strings.HasPrefix(key, k.queue(got))) {
			t.Errorf("%q is taken for a key of %q", key, got)
		}
		if name == "" || !utf8.ValidString(name) {
			return
		}
		if back, ok := k.nameOf(k.ticket(name, "9c3e", 1)); !ok || back != name {
			t.Errorf("%q came back as %q", name, back)
		}
	})
}

// FuzzQueue reads a queue of a valid ticket and, before or after it, one with any value. A key that a session locks
// is queued, or the error names it.
func FuzzQueue(f *testing.F) {
	f.Fuzz(func(t *testing.T, value []byte, session string, index uint64) {
		key := keyspace{prefix: "locker"}.ticket("a", "9c3e", 1)
		valid := &api.KVPair{Key: key, Session: "9c3e", CreateIndex: 1 << 20, Value: encode(&driver.Request{ID: "valid"}, 1)}
		other := &api.KVPair{Key: key + "0", Session: session, CreateIndex: index, Value: value}
		queue, err := parseQueue("a", api.KVPairs{valid, other})
		switch {
		case err != nil && !strings.Contains(err.Error(), other.Key):
			t.Errorf("%v does not name the key", err)
		case err != nil && session != "":
			return
		case err != nil || len(queue) != 1 && session == "":
			t.Errorf("what no session locks is %v, %v", queue, err)
		case session != "" && (len(queue) != 2 || queue[0].Number > queue[1].Number):
			t.Errorf("the queue is %v", queue)
		}
		for _, r := range queue {
			if r.Shown.Remaining < 0 || r.Shown.Limit < 0 || r.ID == "" {
				t.Errorf("%q is shown as %+v", value, r.Shown)
			}
		}
	})
}

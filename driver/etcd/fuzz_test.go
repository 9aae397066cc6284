package etcd

import (
	"strings"
	"testing"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// FuzzKey: a key names a lock only if it is the key of one of its tickets, and is then in its queue and in no other.
func FuzzKey(f *testing.F) {
	f.Fuzz(func(t *testing.T, key, name string) {
		k := keyspace{"locker"}
		if got, ok := k.nameOf(key); ok && (got == "" || !strings.HasPrefix(key, k.queue(got))) {
			t.Errorf("%q is taken for a key of %q", key, got)
		}
		if name == "" || !utf8.ValidString(name) {
			return
		}
		if back, ok := k.nameOf(k.ticket(name, "0123", 7, true)); !ok || back != name {
			t.Errorf("%q came back as %q", name, back)
		}
	})
}

// FuzzTicket decodes a key of a queue. Whatever its value is, it is queued with its number, and of the kind that its
// key says. What the value says counts for people only.
func FuzzTicket(f *testing.F) {
	f.Fuzz(func(t *testing.T, rest string, value []byte, created, lease int64) {
		queue := keyspace{"locker"}.queue("a")
		kv := &mvccpb.KeyValue{Key: []byte(queue + rest), Value: value, CreateRevision: created, Lease: lease}
		entries := entriesOf(nil, queue, []*mvccpb.KeyValue{kv})
		if (len(entries) == 1) != isTicket(rest) {
			t.Fatalf("%q makes %v", rest, entries)
		}
		rec := decodeTicket(queue, "a", kv)
		if len(entries) == 1 && rec.Entry != entries[0] {
			t.Errorf("%+v and %+v", rec.Entry, entries[0])
		}
		if rec.Shown.Token != uint64(created) || rec.Shown.Shared != strings.HasPrefix(rest, sharedClass) || int64(leaseOf(rec.Session)) != lease {
			t.Errorf("%q is shown as %+v", kv, rec)
		}
	})
}

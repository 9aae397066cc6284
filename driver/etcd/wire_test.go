package etcd

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Different names have different queues, and no key of one lies in another.
func TestNamesAreApart(t *testing.T) {
	k, longer := keyspace{"a"}, keyspace{"a/b"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 20, 512).Draw(t, "name")
		other := rapid.OneOf(rapid.StringN(1, 20, 512), rapid.Just(name+"/x"), rapid.Just(name+"#x")).Draw(t, "other")
		queue := k.queue(name)
		key := k.ticket(name, "0123", 7, rapid.Bool().Draw(t, "shared"))
		if got, ok := k.nameOf(key); !ok || got != name || !strings.HasPrefix(key, queue) {
			t.Fatalf("%q is taken for a key of %q, %v, and begins with %q: want name %q", key, got, ok, queue, name)
		}
		for _, q := range []string{k.queue(other), longer.queue(other), longer.queue(name)} {
			if q != queue && strings.HasPrefix(key, q) {
				t.Fatalf("%q of %q lies in the queue %q", key, name, q)
			}
		}
		if (name == other) != (queue == k.queue(other)) {
			t.Fatalf("%q and %q: queues %q and %q", name, other, queue, k.queue(other))
		}
		if _, ok := k.nameOf(longer.ticket(other, "0123", 0, true)); ok {
			t.Fatal("a key of a longer prefix is taken for one of ours")
		}
	})
}

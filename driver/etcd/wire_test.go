package etcd

import (
	"fmt"
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

// The set of bytes that are not escaped in a key is part of the format.
func TestEscape(t *testing.T) {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.:~@+=,"
	for i := range 256 {
		name, want := string([]byte{byte(i)}), fmt.Sprintf("%%%02X", i)
		if strings.Contains(plain, name) {
			want = name
		}
		if got := escape(name); got != want {
			t.Errorf("%q is written %q, want %q", name, got, want)
		}
	}
	for _, s := range []string{"%", "%4", "%zz", "%41", "%2f", "a/b", "$", "%2C"} {
		if name, ok := unescape(s); ok {
			t.Errorf("%q was read as %q", s, name)
		}
	}
}

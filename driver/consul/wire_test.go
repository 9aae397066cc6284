package consul

import (
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestNamesAreKeys(t *testing.T) {
	k := keyspace{prefix: "locker"}
	names := []string{
		"a", "A", "a ", " a", "a/b", "a/", "/", "..", ".", "...", "../..", "a.b", "a=2Fb", "=", "==", "~", "%2e%2e", "a%20b",
		"{}", "\x00", "a\x00", "ä", "日本", "?", "#", "+", "foo", "foobar", "00", strings.Repeat("é", 256), k.queue("a"),
	}
	seen := make(map[string]string)
	for _, name := range names {
		key := k.ticket(name, "9c3e", 1)
		if back, ok := k.nameOf(key); !ok || back != name {
			t.Errorf("nameOf(%q) = %q, %v: want %q", key, back, ok, name)
		}
		if other, taken := seen[key]; taken {
			t.Errorf("%q and %q have the same key", name, other)
		}
		seen[key] = name
		for _, other := range names {
			if other != name && strings.HasPrefix(key, k.queue(other)) {
				t.Errorf("a ticket of %q is in the queue of %q", name, other)
			}
		}
		for part := range strings.SplitSeq(key, "/") {
			if part == "" || part == "." || part == ".." {
				t.Errorf("%q has the part %q, which paths lose", key, part)
			}
		}
	}
	if _, ok := k.nameOf(k.tombstone("s", "id")); ok {
		t.Error("an internal key was taken for a ticket")
	}
	for _, prefix := range []string{"locker/a", "locker/queue", "locker/a/b"} {
		if key := (keyspace{prefix: prefix}).ticket("b", "9c3e", 1); strings.HasPrefix(key, k.queues()) {
			t.Errorf("the ticket %q of a longer prefix is below %q", key, k.queues())
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a/b", "a=2Fb")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || !utf8.ValidString(a) {
			return // no name, or one that JSON and URLs do not carry
		}
		if back, ok := unescape(escape(a)); !ok || back != a {
			t.Errorf("%q became %q", a, back)
		}
		if a != b && escape(a) == escape(b) {
			t.Errorf("%q and %q are the same", a, b)
		}
		unescape(b) // must not panic
	})
}

// There are few guards, whatever the number of names, and none is a ticket.
func TestGuardsAreFew(t *testing.T) {
	k := keyspace{prefix: "locker"}
	keys := make(map[string]bool)
	for i := range 20000 {
		for _, shared := range []bool{true, false} {
			key := k.guard(strconv.Itoa(i), shared)
			keys[key] = true
			if name, ok := k.nameOf(key); ok {
				t.Fatalf("%q is a ticket of %q", key, name)
			}
		}
	}
	if len(keys) != 2*guards {
		t.Errorf("%d guards for 20,000 names, want %d", len(keys), 2*guards)
	}
}

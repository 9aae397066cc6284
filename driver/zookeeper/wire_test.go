package zookeeper

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

func TestEncode(t *testing.T) {
	names := []string{
		"a", "A", "a ", " a", "a/b", "/a", "a//b", "a\x00", "\x00", ".", "..", "...", ".a", "a.", "a/..", "%", "%2F", "%2f",
		"\u00e9", "e\u0301", "\U0010ffff", "\uf8ff", "\ufff0", "zookeeper", "a_b", "a_x_0000000000", strings.Repeat("\xc3\xa9", 256),
	}
	seen := make(map[string]string)
	for _, name := range names {
		e := encode(name)
		if other, created := seen[e]; created {
			t.Errorf("%q and %q are both %s", name, other, e)
		}
		seen[e] = name
		if strings.ContainsAny(e, "/\x00") || e == "." || e == ".." || strings.ContainsFunc(e, refused) {
			t.Errorf("%q: %q is no name of a node", name, e)
		}
		if back, ok := decode(e); !ok || back != name {
			t.Errorf("%q came back as %q, %v", name, back, ok)
		}
	}
	if e := encode("a,b;c$d&e~f:g@h=i+j(k)%"); e != "a,b%3Bc%24d%26e~f:g@h=i+j%28k%29%25" {
		t.Errorf("encoded otherwise than it was: %s", e)
	}
	for _, foreign := range []string{"", "a b", "%", "%2", "%zz", "%61", "%2f", ".a", "a%"} {
		if name, ok := decode(foreign); ok {
			t.Errorf("%q was created for the name %q", foreign, name)
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("a/b", "a%2Fb")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		if (a == b) != (encode(a) == encode(b)) {
			t.Errorf("%q and %q: %q and %q", a, b, encode(a), encode(b))
		}
		if back, ok := decode(encode(a)); !ok || back != a {
			t.Errorf("%q came back as %q", a, back)
		}
	})
}

func TestParseEntry(t *testing.T) {
	for node, want := range map[string]entry{
		"a-1_x_0000000007":   {id: "a-1", seq: 7},
		"a-1_s_2147483647":   {id: "a-1", shared: true, seq: 2147483647},
		"a-1_s12_0000000000": {id: "a-1", shared: true, limit: 12},
		"a-1_x_-2147483648":  {id: "a-1", seq: -2147483648},
		"a-1_x_-000000005":   {id: "a-1", seq: -5},
	} {
		want.node = node
		if e, ok := parseEntry(node); !ok || e != want {
			t.Errorf("%s: %+v, %v", node, e, ok)
		}
	}
	for _, foreign := range []string{"", "a", "a_x", "a_x_", "_x_1", "a__1", "a_y_1", "a_s0_1", "a_s-1_1", "a_x_99999999999", "_c_0f-lock-1"} {
		if e, ok := parseEntry(foreign); ok {
			t.Errorf("%q was created for %+v", foreign, e)
		}
	}
}

// TestNumber orders tickets by their sequence and, where the server's counter comes to its
// end, by their creation.
func TestNumber(t *testing.T) {
	const czxid = 7 << 32
	var last uint64
	for i, seq := range []int32{0, 1, lastSequence, lastSequence + 1, 2147483647, 2147483647, -2147483648, -1} {
		n := entry{seq: seq}.number(int64(czxid + i))
		if n <= last {
			t.Errorf("sequence %d: number %d after %d", seq, n, last)
		}
		last = n
	}
}

// TestAim lets random queues of permits run down and checks that what each waiter of a
// process of its own watches misses nothing: when it can be granted, what it has chosen
// to watch before that has gone or was granted.
func TestAim(t *testing.T) {
	s := new(store)
	for range 3000 {
		queue := randomQueue(2 + rand.IntN(12))
		type watched struct{ by, aim kvqueue.Entry }
		var watches []watched
		for i, e := range queue {
			if isGranted(queue, i) {
				continue
			}
			w := watched{by: e}
			if exclusive := slices.DeleteFunc(slices.Clone(queue[:i]), func(e kvqueue.Entry) bool { return e.Shared }); !e.Shared {
				w.aim = s.Aim(queue[:i], false, 0)
			} else if len(exclusive) > 0 {
				w.aim = s.Aim(exclusive, false, 0)
			} else {
				w.aim = s.Aim(queue[:i], true, e.Limit)
			}
			if at := slices.Index(queue, w.aim); at >= i || at >= 0 && e.Shared && w.aim.Shared && isGranted(queue, at) {
				t.Fatalf("%v: %d waits for %d", queue, i, at)
			}
			watches = append(watches, w)
		}
		for len(queue) > 1 {
			gone := rand.IntN(len(queue))
			queue = slices.Delete(slices.Clone(queue), gone, gone+1)
			for _, w := range watches {
				i, at := slices.Index(queue, w.by), slices.Index(queue, w.aim)
				if i < 0 || w.aim.Key == "" || !isGranted(queue, i) {
					continue
				}
				if at >= 0 && !(w.aim.Shared && isGranted(queue, at)) {
					t.Fatalf("%v: %d can be granted, and was not woken by %d", queue, i, at)
				}
			}
		}
	}
}

func isGranted(queue []kvqueue.Entry, i int) bool {
	return kvqueue.Grants(queue[:i], queue[i].Shared, queue[i].Limit)
}

func randomQueue(n int) []kvqueue.Entry {
	queue := make([]kvqueue.Entry, n)
	for i := range queue {
		queue[i] = kvqueue.Entry{Key: fmt.Sprint("n", i), Number: uint64(i) + 1}
		if rand.IntN(4) > 0 {
			queue[i].Shared, queue[i].Limit = true, rand.IntN(4)
		}
	}
	return queue
}

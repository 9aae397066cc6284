package zookeeper

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
)

// FuzzName: a node is that of a name only if encode makes it.
func FuzzName(f *testing.F) {
	f.Fuzz(func(t *testing.T, node string) {
		if name, ok := decode(node); ok && encode(name) != node {
			t.Errorf("%q is taken for the node of %q", node, name)
		}
	})
}

// FuzzEntry parses the names of two nodes. The queue does not depend on the order in which the server lists them, and a
// node of ours is never left out.
func FuzzEntry(f *testing.F) {
	f.Fuzz(func(t *testing.T, a, b string) {
		var entries []entry
		for _, node := range []string{a, b, "ours_x_0000000007"} {
			if e, ok := parseEntry(node); ok {
				if e.limit == 0 && !strings.HasPrefix(node, e.id+"_"+mode(e.shared, 0)+"_") {
					t.Errorf("%q is parsed as %+v", node, e)
				}
				if e.node != node || e.id == "" || e.limit < 0 || e.limit > 0 && !e.shared || !strings.HasPrefix(node, e.id+"_"+mode(e.shared, 0)) {
					t.Errorf("%q is parsed as %+v", node, e)
				}
				entries = append(entries, e)
			}
		}
		backwards := slices.Clone(entries)
		slices.Reverse(backwards)
		v, w := newView(entries), newView(backwards)
		if !slices.Equal(v.entries, w.entries) {
			t.Errorf("%v and %v", v.entries, w.entries)
		}
		if i := v.index("ours_x_0000000007"); i < 0 || v.granted(i) && i > 0 {
			t.Errorf("%d of %v", i, v.entries)
		}
		for i := range v.entries {
			if j := v.blocker(i); j >= i || j < -1 {
				t.Errorf("%d waits for %d", i, j)
			}
			v.awaited(i)
		}
	})
}

// FuzzRecord decodes the data of a node, which matter to people only.
func FuzzRecord(f *testing.F) {
	f.Fuzz(func(t *testing.T, data []byte) {
		d := &Driver{}
		if left := d.remaining(inspected{rec: parseRecord(data), stat: &zk.Stat{}}); left < 0 {
			t.Errorf("%q lasts for %v", data, left)
		}
	})
}

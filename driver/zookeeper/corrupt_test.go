package zookeeper_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/corrupttest"
)

// TestCorruptQueue: a node that has the form of a ticket counts as one, whatever its data. Nodes of another form are
// left out, and Break removes what Inspect shows.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	for what, node := range map[string]struct {
		name, data string
		ticket     bool
	}{
		"data":         {"id_x_0000000000", "garbage", true},
		"no data":      {"id_s_0000000000", "", true},
		"overflow":     {"id_s7_-000000001", `{"lease":9223372036854775807}`, true},
		"same":         {"!_x_0000000001", "{}", true}, // of two with one sequence the name decides
		"no form":      {"garbage", "{}", false},
		"limit":        {"id_s0_0000000000", "{}", false},
		"no sequence":  {"id_x_", "{}", false},
		"large number": {"id_x_99999999999", "{}", false},
	} {
		t.Run(what, func(t *testing.T) {
			url := storeURL(t)
			l, conn := client(t, url), admin(t)
			k, err := l.Acquire(t.Context(), "a")
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			parent := base(url) + "/a"
			if _, err := conn.Create(parent, nil, 0, zk.WorldACL(zk.PermAll)); err != nil && err != zk.ErrNodeExists { //nolint:errorlint // the client's own
				t.Fatal(err)
			}
			if _, err := conn.Create(parent+"/"+node.name, []byte(node.data), 0, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
			if node.ticket {
				corrupttest.NotGranted(t, l, "a", node.name)
				q, err := l.Inspect(t.Context(), "a")
				if err != nil || len(q.Tickets) != 1 || q.Tickets[0].Remaining < 0 {
					t.Fatalf("the queue is %+v, %v", q, err)
				}
				if err := l.Break(t.Context(), "a", q.Tickets[0].Token); err != nil {
					t.Fatal(err)
				}
			}
			for _, wait := range []time.Duration{0, time.Second} {
				if k, err = l.Acquire(t.Context(), "a", locker.WithWait(wait)); err != nil {
					t.Fatal(err)
				}
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

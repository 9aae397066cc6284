package redlock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A node that is silent does not hold Inspect up: the core asks by it whether the store answers those who wait, and takes a
// store that needs a second for it for one that is away.
func TestInspectBesideASilentNode(t *testing.T) {
	t.Parallel()
	x := newTrio(t, WithNodeTimeout(time.Minute))
	x.members[2].Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if _, err := x.d.Inspect(ctx, "name"); err != nil {
		t.Error(err)
	}
}

// The error of a renewal that the nodes which answered do not decide says that they differ, not that they were too few.
func TestAnswersDiffer(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	h := x.acquireForAMinute("id")
	x.until("held on all nodes", func() bool { return x.holds(0) && x.holds(1) && x.holds(2) })
	x.members[2].Pause()
	x.direct[1].Del(t.Context(), x.key())
	err := x.d.Renew(t.Context(), h, time.Minute)
	if !driver.IsUnavailable(err) || !strings.Contains(err.Error(), "2 of 3 nodes answered, and differ") {
		t.Error(err)
	}
}

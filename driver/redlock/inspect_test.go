package redlock

import (
	"context"
	"testing"
	"time"
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

package command

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// A number of cycles costs no memory before they have run.
func TestPingManyCycles(t *testing.T) {
	t.Parallel()
	c := locker.New(memory.New())
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := timeCycles(ctx, c, math.MaxInt); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

package conformance_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func memoryHarness() conformance.Harness {
	space := memory.New()
	return conformance.Harness{
		Open: func(context.Context) (driver.Driver, error) { return space.Join(), nil },
	}
}

// soon are the topics that hardly wait for the end of leases.
var soon = []string{"exclusion", "fencing", "names", "options", "close", "inspect", "leaks"}

// TestMemory runs some topics in real time, as the suite is run on servers: many cases at a time, and those that count
// keys on stores of their own.
func TestMemory(t *testing.T) {
	var started atomic.Int64
	h := memoryHarness()
	h.Keys = func(context.Context) (int, error) { return 0, errors.New("others use this store") }
	h.NewServer = func(context.Context) (conformance.Harness, error) {
		started.Add(1)
		space := memory.New()
		return conformance.Harness{
			Open: func(context.Context) (driver.Driver, error) { return space.Join(), nil },
			Keys: func(ctx context.Context) (int, error) {
				names, err := space.List(ctx)
				return len(names), err
			},
		}, nil
	}
	h.Except = make(map[string]string)
	for _, c := range conformance.Cases() {
		if !slices.Contains(soon, c.Topic) {
			h.Except[c.String()] = "TestMemoryInBubbles runs it"
		}
	}
	conformance.Run(t, h)
	if n := started.Load(); n < 1 && !testing.Short() || n > 3 {
		t.Errorf("%d stores were started for the cases that count keys, want a few", n)
	}
}

// TestMemoryInBubbles runs all of them in bubbles of testing/synctest.
func TestMemoryInBubbles(t *testing.T) {
	h := memoryHarness()
	h.Bubble = true
	conformance.Run(t, h)
}

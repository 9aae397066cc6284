package conformance_test

import (
	"context"
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

// TestMemory runs the suite in real time.
func TestMemory(t *testing.T) { conformance.Run(t, memoryHarness()) }

// TestMemoryInBubbles runs it in bubbles of testing/synctest.
func TestMemoryInBubbles(t *testing.T) {
	h := memoryHarness()
	h.Bubble = true
	conformance.Run(t, h)
}

package memory_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestConformance(t *testing.T) {
	space := memory.New()
	defer space.Close()
	conformance.Run(t, conformance.Harness{
		Open:   func(context.Context) (driver.Driver, error) { return space.Join(), nil },
		Bubble: true,
		Keys: func(ctx context.Context) (int, error) {
			names, err := space.List(ctx)
			return len(names), err
		},
	})
}

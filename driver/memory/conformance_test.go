package memory_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestConformance(t *testing.T) {
	store := memory.New()
	defer store.Close()
	conformance.Run(t, conformance.Harness{
		Open:   func(context.Context) (driver.Driver, error) { return store.Join(), nil },
		Bubble: true,
		Keys: func(ctx context.Context) (int, error) {
			names, err := store.List(ctx)
			return len(names), err
		},
	})
}

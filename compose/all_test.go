package compose_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// With the token of the first store a lock on several is as one on one store:
// every case applies.
func TestConformanceAllFirst(t *testing.T) { provesAll(t, 0) }

func TestConformanceAllLast(t *testing.T) { provesAll(t, 1) }

func provesAll(t *testing.T, authority int) {
	first, second := memory.New(), memory.New()
	defer first.Close()
	defer second.Close()
	conformance.Run(t, conformance.Harness{
		Open: func(context.Context) (driver.Driver, error) {
			return compose.All(first.Join(), second.Join()).Authority(authority), nil
		},
		Bubble: true,
		Keys: func(ctx context.Context) (int, error) {
			a, err := first.List(ctx)
			b, err2 := second.List(ctx)
			if err == nil {
				err = err2
			}
			return len(a) + len(b), err
		},
	})
}

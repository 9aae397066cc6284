package compose_test

import (
	"context"
	"testing"

	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// mixed is why a case with several limits under one name does not apply to All.
const mixed = "tickets with different limits that the first store grants together may reach the second in another order"

// number is why a case that compares the numbers of waiters with tokens does not apply
// to All when the authority is not the first store.
const number = "a waiter is shown with its number on the first store until it has one at the authority"

// notFirst are the cases that do not apply to All with the first store as the authority.
var notFirst = map[string]string{
	"exclusion/queue-obeys-rule": mixed,
}

// notLast are the cases that do not apply with the last store as the authority.
var notLast = map[string]string{
	"exclusion/queue-obeys-rule": mixed,
	"expiry/long-waiter":         number,
	"fencing/after-waiting":      number,
	"loss/late-grant":            number,
	"inspect/long-queue":         number,
	"history/mixed":              number,
	"history/with-cuts":          number,
}

// unknown is why cases about a ticket that is on neither store do not apply to Fallback
// while the primary is down.
const unknown = "whether a ticket that is not on the secondary is on the primary is not known while that is down"

// notDown are the cases that do not apply to Fallback while the primary is down.
var notDown = map[string]string{
	"ownership/strangers":           unknown,
	"ownership/stale-handle":        unknown,
	"ownership/stale-reader":        unknown,
	"ownership/release-asked-again": unknown,
	"ownership/waiter-released":     unknown,
	"loss/break-unknown":            unknown,
	"close/driver-unblocks":         unknown,
}

func TestConformanceAllFirst(t *testing.T) {
	first, second := memory.New(), memory.New()
	prove(t, notFirst, harness(first, second, func() driver.Driver {
		return compose.All(first.Join(), second.Join()).Authority(0)
	}))
}

func TestConformanceAllLast(t *testing.T) {
	first, second := memory.New(), memory.New()
	prove(t, notLast, harness(first, second, func() driver.Driver {
		return compose.All(first.Join(), second.Join())
	}))
}

// Every case applies to All of one store, to TokenBase, and to Fallback while the
// primary answers.
func TestConformance(t *testing.T) {
	first, second := memory.New(), memory.New()
	for name, open := range map[string]func() driver.Driver{
		"one":       func() driver.Driver { return compose.All(first.Join()) },
		"tokenbase": func() driver.Driver { return compose.TokenBase(first.Join(), 1<<50) },
		"fallback":  func() driver.Driver { return compose.Fallback(first.Join(), second.Join()) },
	} {
		t.Run(name, func(t *testing.T) { prove(t, nil, harness(first, second, open)) })
	}
}

func TestConformanceDegraded(t *testing.T) {
	first, second := memory.New(), memory.New()
	prove(t, notDown, harness(first, second, func() driver.Driver {
		return compose.Fallback(down{first.Join()}, second.Join())
	}))
}

func harness(first, second *memory.Driver, open func() driver.Driver) conformance.Harness {
	return conformance.Harness{
		Bubble: true,
		Open:   func(context.Context) (driver.Driver, error) { return open(), nil },
		Keys: func(ctx context.Context) (int, error) {
			a, err := first.List(ctx)
			if err != nil {
				return 0, err
			}
			b, err := second.List(ctx)
			return len(a) + len(b), err
		},
	}
}

// prove runs the suite, without the cases that do not apply.
func prove(t *testing.T, not map[string]string, h conformance.Harness) {
	t.Helper()
	h.Except = not
	conformance.Run(t, h)
}

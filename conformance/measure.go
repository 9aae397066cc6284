package conformance

import (
	"context"
	"time"

	"github.com/lockerproject/locker/internal/probe"
)

// measurements is how often something is measured, at most, before it is measured once
// without a stall of the store or of this process.
const measurements = 8

// measure returns what f has measured, which the driver has to do within b. A
// measurement that is longer, beside which the store or this process stood still for half
// of the bound, proves nothing and is repeated.
func (e *env) measure(b bound, f func() time.Duration) (took time.Duration) {
	_, d := e.controlled()
	name := e.name("probe")
	ask := func() {
		ctx, cancel := context.WithTimeout(e.ctx, patience)
		defer cancel()
		_, _ = d.Inspect(ctx, name)
	}
	for range measurements {
		stall := probe.Stall(ask, func() { took = f() })
		if took <= b.d || stall < b.d/2 {
			return took
		}
		e.logf("%v, in which the store or this process stood still for %v, do not count", took, stall)
	}
	e.failf("the store or this process stood still in each of %d measurements of what has a bound of %v: the machine is too busy", measurements, b)
	return took
}

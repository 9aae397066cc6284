package conformance

import (
	"context"
	"errors"
	"fmt"
)

// notReturned is the failure of a method that does not return.
type notReturned struct{ method string }

func (n notReturned) Error() string {
	return fmt.Sprintf("%s has not returned %v after its context ended (D16)", n.method, patience)
}

// returns is run before all cases. If a method does not return, most of them would wait for it, for minutes.
var returns = newCase("returns", "D16", "every method returns when its context has ended", func(e *env) {
	holder, d, name := e.driver(), e.driver(), e.uncheckedName("returns")
	h := e.grant(holder, e.request(name))
	p := e.queueAt(d, e.request(name), 2)
	p.cancel(nil)
	returned := closedWithin(p.done, patience)
	e.drop(holder, h) // which ends a wait that its context has not ended
	if !returned {
		e.failf("%w", notReturned{"Acquire that waits"})
	}
	_ = d.Release(e.within(patience), p.r.Hold(0))
	if e.h.OpenLink == nil {
		return
	}
	_, ms := e.cutOff()
	e.each(len(ms), func(i int) { _, _ = e.unanswered(ms[i], slack/10) })
})

// stuck returns an error if a method of the driver does not return. What else is wrong, the cases find.
func stuck(ctx context.Context, h Harness) error {
	var n notReturned
	if errors.As(returns.Run(ctx, h), &n) {
		return fmt.Errorf("%w: no case is run, since most would wait for that", n)
	}
	return nil
}

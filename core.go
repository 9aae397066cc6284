package locker

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// core is what the parts of a Client share. Nothing of it changes after New.
//
// Calls go one way: Client → acquisition → leases → removals → driver.
type core struct {
	d         driver.Driver
	store     string // what errors call the store
	clock     *clock
	tasks     *tasks
	observers []func(context.Context, Event)

	margin         time.Duration // the safety margin, if marginSet
	marginSet      bool
	answerTimeout  time.Duration
	releaseTimeout time.Duration
}

// marginOf is the safety margin of a lease of the given length.
func (c *core) marginOf(length time.Duration) time.Duration {
	if c.marginSet {
		return c.margin
	}
	return length / 100
}

// storeTTL is the lease to ask the store for: no shorter than it can give.
func (c *core) storeTTL(ttl time.Duration) time.Duration {
	return max(ttl, driver.BoundsOf(c.d, ttl).MinTTL)
}

// ask sends a request to the store, within the bound for its answer. The request
// ends when Close begins.
func (c *core) ask(ctx context.Context, request func(context.Context) error) error {
	if ctx.Err() != nil {
		return contextError(ctx)
	}
	if !c.tasks.begin() {
		return ErrClosed
	}
	defer c.tasks.done()
	bounded, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(c.tasks.live, func() { end(ErrClosed) })()
	bounded, cancel := context.WithTimeoutCause(bounded, c.answerTimeout, noAnswer(c.answerTimeout))
	defer cancel()
	err := request(bounded)
	switch {
	case err == nil || bounded.Err() == nil:
		return unanswered(err)
	case ctx.Err() == nil && c.tasks.live.Err() != nil:
		return because(err, ErrClosed)
	case ctx.Err() != nil:
		return because(err, ErrUnavailable, ctx.Err(), context.Cause(ctx))
	default:
		return because(err, ErrUnavailable, context.Cause(bounded))
	}
}

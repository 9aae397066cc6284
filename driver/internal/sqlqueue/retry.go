package sqlqueue

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// interruptions is how many broken connections are tolerated before the caller gets the error.
const interruptions = 3

// creations is how often tables are created for a request: somebody else may drop them.
const creations = 3

// A Kind says how a request may be sent again.
type Kind uint8

// Kinds of requests.
const (
	Once    Kind = iota // not after its connection broke
	Twice               // also then
	Creates             // also then, and if there are no tables yet they are created: the others find nothing there
	Asks                // as Twice: it needs no tables
)

// Repeat calls f, which sends a request, until it succeeds or fails for good, and marks its error for the core. When ctx
// ends, the error also contains that of the call before the last. Where Close has ended the request, the error is ErrClosed.
func Repeat[T any](ctx context.Context, e *Engine, k Kind, f func() (T, error)) (answer T, err error) {
	backoff, broken, created := retry.Backoff{First: 5 * time.Millisecond, Most: 250 * time.Millisecond}, 0, 0
	for {
		if e.life.Closed() {
			return answer, driver.ErrClosed
		}
		before := err
		if answer, err = f(); err == nil {
			if k != Asks && !e.used.Load() {
				e.used.Store(true)
			}
			return answer, nil
		}
		if e.store.Class(err)&Missing != 0 && ctx.Err() == nil {
			if created == creations {
				return answer, e.opts.Schema.missing(err, nil)
			}
			var there bool
			if there, err = MakeTables(ctx, e, err, k == Creates, e.used.Load()); there {
				created++
				continue
			} else if err == nil {
				var none T
				return none, nil
			}
		}
		if end := ended(ctx); end != nil {
			return answer, e.explain(ctx, errors.Join(end, err, before))
		}
		c := e.store.Class(err)
		again := c&Passing != 0
		if again && c&Undone == 0 {
			broken++
			again = k != Once && broken <= interruptions
		}
		if !again {
			return answer, e.explain(ctx, err)
		}
		if !retry.Sleep(ctx, backoff.Next(), e.life.Done()) {
			return answer, e.explain(ctx, errors.Join(context.Cause(ctx), err))
		}
	}
}

// Do is Repeat for a request whose answer is no more than its error.
func Do(ctx context.Context, e *Engine, k Kind, f func() error) error {
	_, err := Repeat(ctx, e, k, func() (none struct{}, err error) { return none, f() })
	return err
}

// explain marks the error of a request for the core. It returns ErrClosed if Close ended the request.
func (e *Engine) explain(ctx context.Context, err error) error {
	switch {
	case e.life.Closed() && ctx.Err() == nil:
		return driver.ErrClosed
	case e.store.Class(err)&Down != 0:
		return driver.Unavailable(err)
	}
	return err
}

// ended returns why ctx is over; nil while it lasts. A connection that is being opened has the deadline of ctx, and
// may time out a moment before ctx does.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond): // its timer is late
			return context.DeadlineExceeded
		}
	}
	return context.Cause(ctx)
}

package kvqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"
)

// A caller is notified for long that its ticket waits. Its context ends meanwhile, and the
// ticket is granted. That is no silence of the store.
func TestContextEndsBeforeALateGrant(t *testing.T) {
	for _, what := range []string{"keep", "missing"} {
		t.Run(what, func(t *testing.T) {
			for range 10 { // the end of the context and the grant are both noticed, in either order
				inBubble(t, func(b *bed) {
					b.store.unwatched, b.e.opts.LocalWait = true, time.Hour
					h := b.get(b.e, request("a", "0"))
					ctx, cancel := context.WithTimeoutCause(b.Context(), time.Second, errors.New("the wait limit"))
					defer cancel()
					r := request("a", "w")
					r.Renewed = what == "missing" // else its lease begins with a keep-alive
					r.Joined = func() { time.Sleep(2 * time.Second) }
					time.AfterFunc(time.Second/2, func() { b.reportLosses(); b.drop(b.e, h) })
					_, err := b.e.Acquire(ctx, r)
					if err != nil && errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%v, want the cause of the context alone", err)
					}
					b.drop(b.e, r.Hold(0))
				})
			}
		})
	}
}

// A context that ends while a grant is confirmed is no silence of the store, which has just granted it: the error has the cause alone.
func TestContextEndsDuringAGrant(t *testing.T) {
	for _, what := range []string{"keep", "missing"} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.store.unwatched, b.e.opts.LocalWait = true, time.Hour
				h := b.get(b.e, request("a", "0"))
				cause := errors.New("the wait limit")
				ctx, cancel := context.WithTimeoutCause(b.Context(), time.Second, cause)
				defer cancel()
				r := request("a", "w")
				r.Renewed = what == "missing" // else its lease begins with a keep-alive
				var late atomic.Bool
				time.AfterFunc(time.Second-time.Millisecond, func() {
					late.Store(true)
					if what == "missing" {
						b.reportLosses()
					}
					b.drop(b.e, h)
				})
				b.store.fault = func(asked, _ string, done bool) error {
					if asked != what || done || !late.Load() {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				}
				_, err := b.e.Acquire(ctx, r)
				if err == nil || err.Error() != cause.Error() {
					t.Errorf("%v, want the cause of the context alone", err)
				}
				b.drop(b.e, r.Hold(0))
			})
		})
	}
}

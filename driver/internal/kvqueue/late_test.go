package kvqueue

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
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
				if err := b.e.stopped(b.Context()); err != nil {
					t.Errorf("who waits for another ticket is told that the store is away: %v", err)
				}
				b.drop(b.e, r.Hold(0))
			})
		})
	}
}

// What a keep-alive for one caller has come to says something of the store to others only if there was an answer, or
// time for one.
func TestCallersEndSaysNothing(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "0"))
		var s *session
		for s = range b.e.sessions {
		}
		keep := func(took time.Duration, answer error) {
			ctx, cancel := context.WithCancel(b.Context())
			time.AfterFunc(took, cancel)
			b.store.with(func(what, _ string, done bool) error {
				if what == "keep" && done == (answer == nil) {
					<-ctx.Done()
					if answer == nil {
						return nil
					}
					return &url.Error{Op: "Put", URL: "/v1/session/renew", Err: ctx.Err()}
				}
				return nil
			})
			_ = b.e.keepAlive(ctx, s)
			b.store.with(nil)
		}
		for _, took := range []time.Duration{0, time.Millisecond, 499 * time.Millisecond} {
			keep(took, errFakeLost)
			if err := b.e.stopped(b.Context()); err != nil || s.failing {
				t.Errorf("after %v: %v, failing: %t", took, err, s.failing)
			}
		}
		for _, took := range []time.Duration{500 * time.Millisecond, 2 * time.Second} {
			keep(took, errFakeLost)
			if err := b.e.stopped(b.Context()); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.Canceled) || !s.failing {
				t.Errorf("after %v: %v, failing: %t; want ErrUnavailable", took, err, s.failing)
			}
		}
		keep(time.Millisecond, nil) // the answer comes together with the end of the context
		if err := b.e.stopped(b.Context()); err != nil || s.failing {
			t.Errorf("after an answer: %v, failing: %t", err, s.failing)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var asked atomic.Bool
		over := make(chan struct{})
		b.store.with(func(what, _ string, done bool) error {
			if what == "keep" && asked.CompareAndSwap(false, true) {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		go func() {
			defer close(over)
			_ = b.e.keepAlive(ctx, s)
		}()
		time.Sleep(time.Second)
		if err := b.e.keepAlive(b.Context(), s); err != nil {
			t.Error(err)
		}
		cancel()
		<-over
		if err := b.e.stopped(b.Context()); err != nil || s.failing {
			t.Errorf("after a later answer: %v, failing: %t", err, s.failing)
		}
		b.drop(b.e, h)
	})
}

package locker_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// The cause with which the caller's context ends may be the error of another acquisition.
// It does not count as the store's answer to this one: the ticket of this one is removed.
func TestCauseIsNoAnswer(t *testing.T) {
	for what, cause := range map[string]error{
		"not acquired": fmt.Errorf("the other one: %w", locker.ErrNotAcquired),
		"no ticket":    driver.NoTicket(errDown),
		"lost":         locker.ErrLost,
	} {
		for _, lazy := range []bool{false, true} {
			t.Run(what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStub()
					l := locker.New(s)
					defer l.Close()
					if lazy { // the driver has not waited for the context, and has lost the answer
						s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
							if _, err := next(context.WithoutCancel(ctx), r); err != nil {
								t.Error(err)
							}
							time.Sleep(2 * time.Second)
							return driver.Grant{}, context.Cause(ctx)
						}
					} else {
						acquire(t, l, "a")
					}
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(time.Second, func() { cancel(cause) })
					_, err := l.Acquire(ctx, "a")
					want(t, err, context.Canceled)
					for _, sentinel := range []error{locker.ErrNotAcquired, locker.ErrLost, driver.ErrNoTicket} {
						if errors.Is(err, sentinel) {
							t.Errorf("%v matches %v, which is the answer to another call", err, sentinel)
						}
					}
					if !strings.Contains(err.Error(), cause.Error()) {
						t.Errorf("%q does not contain %q", err, cause)
					}
					time.Sleep(time.Second)
					tickets := 1
					if lazy {
						tickets = 0
					}
					if n := s.queueLen(t, "a"); n != tickets {
						t.Errorf("%d tickets are queued, want %d", n, tickets)
					}
				})
			})
		}
	}
}

// Extend under the context of another lock, which is lost meanwhile, does not lose its own lock.
func TestExtendUnderALostLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		outer, inner := acquire(t, l, "outer"), acquire(t, l, "inner")
		s.set(func(s *stub) {
			s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
				if r.Name == "inner" && r.TTL > time.Minute {
					<-ctx.Done()
					return context.Cause(ctx)
				}
				return next(ctx, r)
			}
		})
		time.AfterFunc(time.Second, func() {
			if err := s.Break(context.Background(), "outer", outer.Token()); err != nil {
				t.Error(err)
			}
		})
		err := inner.Extend(outer.Context(t.Context()), time.Hour)
		want(t, err, context.Canceled)
		want(t, outer.Err(), locker.ErrLost)
		if err := inner.Err(); err != nil {
			t.Errorf("the lock itself: %v", err)
		}
	})
}

// causing is a store that leaves Break and Inspect without an answer, and returns the cause
// of the end of their context.
type causing struct{ *memory.Driver }

func (causing) Break(ctx context.Context, _ string, _ uint64) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (causing) Inspect(ctx context.Context, _ string) ([]driver.Ticket, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// The methods that neither acquire nor extend say no more than that their context has ended,
// before it was asked or meanwhile.
func TestCauseIsNoAnswerToBreak(t *testing.T) {
	for _, cause := range []error{locker.ErrLost, locker.ErrNotAcquired, locker.ErrReleased, locker.ErrUpgrade} {
		for _, after := range []time.Duration{0, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				l := locker.New(causing{memory.New()})
				defer l.Close()
				for what, ask := range map[string]func(context.Context) error{
					"break":   func(ctx context.Context) error { return l.Break(ctx, "a", 1) },
					"inspect": func(ctx context.Context) error { _, err := l.Inspect(ctx, "a"); return err },
					"ping":    l.Ping,
				} {
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(after, func() { cancel(cause) })
					time.Sleep(time.Nanosecond)
					err := ask(ctx)
					want(t, err, context.Canceled)
					if errors.Is(err, cause) || strings.Contains(err.Error(), "no ticket") {
						t.Errorf("%s, whose context ended with %q: %v", what, cause, err)
					}
				}
			})
		}
	}
}

// Extend of a lock that has ended says so, also under a context that has ended.
func TestExtendOfAnEndedLock(t *testing.T) {
	l := locker.New(newStub())
	defer l.Close()
	k := acquire(t, l, "a")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	want(t, k.Extend(ctx, time.Minute), context.Canceled)
	release(t, k)
	want(t, k.Extend(ctx, time.Minute), locker.ErrReleased)
}

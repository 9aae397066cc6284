package locker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// lateGrant is a grant that comes late, and what else happens.
type lateGrant struct {
	ttl    time.Duration
	late   float64 // when it comes, in parts of the TTL
	claim  float64 // the provisional lease, in parts of the TTL; 0: none
	answer string  // to the renewal before the hand-over
	event  string
	after  float64 // when the event comes, in parts of the lateness
	how    string  // how the lock is asked for
	kind   string  // of the lease

	ended  time.Time // when the call has to end; zero: by itself
	faults []string

	mu       sync.Mutex
	hold     driver.Hold
	renewals int
	renewed  bool // one of them
}

// A grant comes late, and what can happen then happens before or after it has come. The
// caller returns in time, with a lock that the store's lease outlasts or an error that says
// what has happened, and the queue is empty in the end.
func TestLateGrantInEveryOrder(t *testing.T) {
	each(func(g *lateGrant) {
		synctest.Test(t, func(*testing.T) { g.run() })
		for _, f := range g.faults {
			t.Errorf("%v late by %v, claim %v, answer %s, %s after %v, %s, %s: %s", g.ttl, g.late, g.claim, g.answer, g.event, g.after, g.how, g.kind, f)
		}
	})
}

func each(f func(*lateGrant)) {
	for _, came := range []struct {
		ttl  time.Duration
		late float64
	}{{50 * time.Millisecond, 0.7}, {50 * time.Millisecond, 1.2}, {300 * time.Millisecond, 0.7}, {300 * time.Millisecond, 0.8}, {5 * time.Second, 0.98}} {
		for _, claim := range []float64{0, 0.8} {
			for _, answer := range []string{"at once", "late", "when given up", "never", "never once", "lost", "refused", "refused once"} {
				for _, event := range []string{"nothing", "cancel", "limit", "close", "break", "loss"} {
					for _, after := range []float64{0.5, 1.0001} {
						for _, how := range []string{"direct", "waiter", "try", "group", "owner"} {
							for _, kind := range []string{"renewed", "fixed", "minhold"} {
								f(&lateGrant{ttl: came.ttl, late: came.late, claim: claim, answer: answer, event: event, after: after, how: how, kind: kind})
							}
						}
					}
				}
			}
		}
	}
}

func (g *lateGrant) fault(format string, args ...any) {
	g.faults = append(g.faults, fmt.Sprintf(format, args...))
}

func (g *lateGrant) run() {
	const held = 15 * time.Second // by somebody else, if g is a waiter
	s := &pusher{stub: newStub()}
	lateness := time.Duration(g.late * float64(g.ttl))
	s.acquire, s.renew = g.acquire(lateness), g.renew(s)
	c := locker.New(s)
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	begun, due := time.Now(), locker.DefaultAnswerTimeout
	at := time.Duration(g.after * float64(lateness))
	if g.how == "waiter" {
		first := driver.Request{Name: "a", ID: "holder", TTL: time.Hour}
		_, _ = s.Driver.Acquire(ctx, first)
		time.AfterFunc(held, func() { _ = s.Driver.Release(context.Background(), first.Hold(0)) })
		at += held
		due += held + lateness
	}
	opts := g.happens(s, c, at, cancel)
	k, err := g.ask(ctx, c, opts)
	switch back := time.Now(); {
	case !g.ended.IsZero() && back.Sub(g.ended) > 100*time.Millisecond:
		g.fault("back %v after its end: %v", back.Sub(g.ended), err)
	case g.answer == "never once" && g.claim == 0 && g.late < 1 && back.Sub(begun) > due-locker.DefaultAnswerTimeout+lateness+time.Second:
		g.fault("one renewal was lost, and it was back after %v: %v", back.Sub(begun), err)
	case back.Sub(begun) > due+100*time.Millisecond:
		g.fault("back after %v: %v", back.Sub(begun), err)
	}
	if err == nil {
		g.checkHeld(s, k)
		_ = k.Release(context.Background())
	} else {
		g.checkError(err)
	}
	time.Sleep(time.Minute + held)
	if g.event == "close" {
		return
	}
	if q, _ := s.Inspect(context.Background(), "a"); len(q) != 0 {
		g.fault("%d tickets are left", len(q))
	}
	if leases, owners, removals, scheduled := c.Kept(); leases+owners+removals+scheduled != 0 {
		g.fault("%d leases, %d owners, %d removals and %d scheduled are left", leases, owners, removals, scheduled)
	}
}

func (g *lateGrant) ticket() driver.Hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hold
}

// acquire has the first grant of a come late.
func (g *lateGrant) acquire(lateness time.Duration) func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
	return func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		grant, err := next(ctx, r)
		if err != nil || r.Name != "a" || g.ticket().ID != "" {
			return grant, err
		}
		g.mu.Lock()
		g.hold = r.Hold(grant.Token)
		g.mu.Unlock()
		grant.Claim = time.Duration(g.claim * float64(g.ttl))
		select {
		case <-time.After(lateness):
		case <-ctx.Done():
		}
		return grant, nil
	}
}

// renew answers the renewals of that grant.
func (g *lateGrant) renew(s *pusher) func(context.Context, driver.Renewal, renewFunc) error {
	return func(ctx context.Context, r driver.Renewal, next renewFunc) error {
		if r.Hold.ID != g.ticket().ID {
			return next(ctx, r)
		}
		g.mu.Lock()
		g.renewals++
		first := g.renewals == 1
		g.mu.Unlock()
		switch g.answer {
		case "late":
			select {
			case <-time.After(60 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
		case "when given up":
			<-ctx.Done()
			time.AfterFunc(time.Second, func() { _ = next(context.Background(), r) })
			return ctx.Err()
		case "never":
			<-ctx.Done()
			time.Sleep(40 * time.Millisecond)
			return context.Cause(ctx)
		case "never once":
			if first {
				<-ctx.Done()
				time.Sleep(40 * time.Millisecond)
				return context.Cause(ctx)
			}
		case "lost":
			_ = s.Driver.Release(context.Background(), r.Hold)
			return driver.ErrLost
		case "refused":
			return driver.Unavailable(errRefused)
		case "refused once":
			if first {
				return driver.Unavailable(errRefused)
			}
		}
		g.mu.Lock()
		g.renewed = true
		g.mu.Unlock()
		return next(ctx, r)
	}
}

// happens has the event happen at that time, and returns the options.
func (g *lateGrant) happens(s *pusher, c *locker.Client, at time.Duration, cancel func()) []locker.Option {
	opts := []locker.Option{locker.WithTTL(g.ttl)}
	switch g.kind {
	case "fixed":
		opts = append(opts, locker.WithoutRenewal())
	case "minhold":
		opts = append(opts, locker.WithMinHold(g.ttl))
	}
	end := time.Now().Add(at)
	switch g.event {
	case "cancel":
		g.ended = end
		time.AfterFunc(at, cancel)
	case "limit":
		if g.how != "try" {
			g.ended = end
			opts = append(opts, locker.WithWait(at))
		}
	case "close":
		g.ended = end
		time.AfterFunc(at, func() { _ = c.Close() })
	case "break", "loss":
		time.AfterFunc(at, func() {
			if g.event == "loss" {
				s.notify(g.ticket(), errors.New("the session has ended"))
			}
			_ = s.Driver.Release(context.Background(), g.ticket())
		})
	}
	return opts
}

func (g *lateGrant) ask(ctx context.Context, c *locker.Client, opts []locker.Option) (*locker.Lock, error) {
	switch g.how {
	case "try":
		return c.TryAcquire(ctx, "a", opts...)
	case "group":
		return locker.AcquireAll(ctx, c, []string{"b", "a"}, opts...)
	case "owner":
		opts = append(opts, locker.WithOwner("me"))
	}
	return c.Acquire(ctx, "a", opts...)
}

// checkError checks that the error matches what has happened, and nothing else.
func (g *lateGrant) checkError(err error) {
	is := func(target error) bool { return errors.Is(err, target) }
	switch {
	case is(locker.ErrLost) && g.how != "group", is(context.DeadlineExceeded), is(context.Canceled) && g.event != "cancel",
		is(locker.ErrClosed) && g.event != "close", is(locker.ErrNotAcquired) && g.event != "limit":
		g.fault("that did not happen: %v", err)
	case g.ended.IsZero() && !is(locker.ErrUnavailable) && g.how != "group":
		g.fault("without an end: %v", err)
	case g.how == "try" && g.event == "nothing" && g.answer == "refused" && !is(errRefused):
		g.fault("not the store's own error: %v", err)
	}
}

// checkHeld checks that the store has the ticket for as long as the lock is held, and that
// a store that answers renews it.
func (g *lateGrant) checkHeld(s *pusher, k *locker.Lock) {
	g.mu.Lock()
	renewed := g.renewed
	g.mu.Unlock()
	if g.kind == "minhold" && g.claim > 0 && k.Locks()[0].Token() == g.ticket().Token && !renewed {
		g.fault("the lease is shorter than the minimum hold")
	}
	taken := g.event == "break" || g.event == "loss" || g.event == "close"
	for range 5 {
		synctest.Wait() // what a renewal at this moment is answered has been heard
		until := k.Deadline()
		q, _ := s.Inspect(context.Background(), "a")
		if k.Err() == nil && !taken && (len(q) == 0 || !q[0].Held || q[0].Remaining < time.Until(until)) {
			g.fault("held for %v more, and the store has %+v", time.Until(until), q)
		}
		time.Sleep(g.ttl / 4)
	}
	if g.event == "nothing" && g.answer == "at once" && g.kind == "renewed" && k.Err() != nil {
		g.fault("not renewed: %v", k.Err())
	}
}

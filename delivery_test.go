package locker_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// slowUntil is an observer that takes d for each event from first on, until it is released.
func slowUntil(release <-chan struct{}, first locker.EventKind, d time.Duration) locker.ClientOption {
	return locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind < first {
			return
		}
		select {
		case <-release:
		case <-time.After(d):
		}
	})
}

// Acquire returns after its own event, though the observer is slower than the renewals.
func TestAcquireDeliversOnlyItsOwnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l := locker.New(newStub(), slowUntil(release, locker.EventAcquired, 1500*time.Millisecond))
		defer l.Close()
		defer close(release)
		acquired := make(chan struct{})
		go func() {
			_, _ = l.Acquire(context.Background(), "a", locker.WithTTL(3*time.Second))
			close(acquired)
		}()
		select {
		case <-acquired:
		case <-time.After(2 * time.Second):
			t.Error("Acquire has not returned after 2s, the observer takes 1.5s")
		}
	})
}

// A lock whose renewals keep a slow observer busy does not hide the loss of another lock.
func TestBusyObserverHearsOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, lost := make(chan struct{}), make(chan struct{})
		l := locker.New(newStub(), slowUntil(release, locker.EventRenewed, 1500*time.Millisecond),
			locker.WithObserver(func(_ context.Context, e locker.Event) {
				if e.Kind == locker.EventLost {
					close(lost)
				}
			}))
		defer l.Close()
		defer close(release)
		acquire(t, l, "b", locker.WithTTL(5*time.Second), locker.WithoutRenewal())
		acquire(t, l, "a", locker.WithTTL(3*time.Second))
		select {
		case <-lost:
		case <-time.After(time.Minute):
			t.Error("the loss was not heard of within a minute")
		}
	})
}

// What a blocked observer has not heard of does not grow with the renewals, failed ones
// between them or not.
func TestRenewalsDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		n := 0
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			if n++; n%2 == 0 {
				return errDown
			}
			return next(ctx, r)
		}
		observer, blocked, release := blocking(locker.EventRenewed)
		var seen events
		l := locker.New(s, locker.WithObserver(observer), locker.WithObserver(seen.add))
		k := acquire(t, l, "a", locker.WithTTL(3*time.Second))
		<-blocked
		time.Sleep(time.Hour)
		if n := l.Undelivered(); n > 1 {
			t.Errorf("the lease is queued %d times", n)
		}
		close(release)
		_ = k.Release(context.Background())
		_ = l.Close()
		if n := len(seen.all()); n > 4 {
			t.Errorf("%d events, want the grant, the renewal that was blocked, the last one and the release", n)
		}
	})
}

// An acquisition whose tickets are lost, and whose caller gives up between two of them, is
// not lost.
func TestGivenUpBetweenTickets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(_ context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
			r.Joined()
			return driver.Grant{}, fmt.Errorf("the queue is gone: %w", driver.ErrLost)
		}
		l := locker.New(s)
		defer l.Close()
		for i := range 50 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i)*time.Millisecond)
			_, err := l.Acquire(ctx, "a")
			cancel()
			if err == nil || errors.Is(err, locker.ErrLost) {
				t.Fatalf("after %d ms: %v", i, err)
			}
		}
	})
}

// The cause of the caller's context may be the error of another acquisition that was over
// its wait limit. That is no limit of this one.
func TestCauseIsNoLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(newStub())
		defer l.Close()
		acquire(t, l, "a")
		_, cause := l.Acquire(context.Background(), "a", locker.WithWait(time.Second))
		want(t, cause, locker.ErrNotAcquired)
		ctx, cancel := context.WithCancelCause(context.Background())
		time.AfterFunc(time.Second, func() { cancel(cause) })
		_, err := l.Acquire(ctx, "a", locker.WithWait(time.Hour))
		want(t, err, context.Canceled)
		if errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("%v matches ErrNotAcquired after 1s of an hour", err)
		}
	})
}

// A store that does not answer the renewal of a late grant does not hold up the waiter for
// longer than an answer may take.
func TestRenewalOfALateGrantHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		other := acquire(t, l, "a")
		s.set(func(s *stub) {
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				g, err := next(ctx, r)
				time.Sleep(2 * time.Second)
				return g, err
			}
			s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		time.AfterFunc(time.Second, func() { _ = other.Release(context.Background()) })
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		begun := time.Now()
		_, err := l.Acquire(ctx, "a", locker.WithTTL(time.Second))
		want(t, err, locker.ErrUnavailable)
		if d := time.Since(begun); d > 20*time.Second {
			t.Errorf("returned after %v", d)
		}
	})
}

// An error with which the store has answered a renewal is not ErrUnavailable because
// another renewal of the batch was not answered.
func TestAnsweredRenewalOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := errors.New("permission denied")
		s := newStub()
		s.renew = func(ctx context.Context, r driver.Renewal, _ renewFunc) error {
			if r.Hold.Name == "a" {
				return refused
			}
			<-ctx.Done()
			return ctx.Err()
		}
		var seen events
		l := locker.New(s, locker.WithObserver(seen.add))
		defer l.Close()
		acquire(t, l, "a")
		acquire(t, l, "b")
		time.Sleep(25 * time.Second)
		for _, e := range seen.of(locker.EventRenewFailed) {
			if unanswered := errors.Is(e.Err, locker.ErrUnavailable); unanswered != (e.Name == "b") {
				t.Errorf("%s: %v", e.Name, e.Err)
			}
		}
	})
}

// A driver may report the losses of many tickets that are in the books no more, at the end
// of a session.
func TestManyEarlyLosses(t *testing.T) {
	p := &pusher{stub: newStub()}
	l := locker.New(p)
	defer l.Close()
	begun := time.Now()
	for i := range 20_000 {
		p.notify(driver.Hold{Name: "a", ID: fmt.Sprint(i)}, driver.ErrLost)
	}
	if d := time.Since(begun); d > time.Second {
		t.Errorf("20000 losses took %v", d)
	}
}

// An observer that panics at every event of a caller panics in that caller.
func TestPanicOfEveryEvent(t *testing.T) {
	l := locker.New(newStub(), locker.WithObserver(func(context.Context, locker.Event) { panic("observer") }))
	defer l.Close()
	for range 2000 {
		if !caught(func() { _, _ = l.Acquire(context.Background(), "a") }) {
			t.Fatal("no panic")
		}
	}
}

// An observer that ends its goroutine, as t.FailNow does, ends no delivery.
func TestGoexitOfAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen events
		var once sync.Once
		l := locker.New(newStub(), locker.WithObserver(seen.add), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventRenewed {
				once.Do(runtime.Goexit)
			}
		}))
		defer l.Close()
		acquire(t, l, "a", locker.WithTTL(3*time.Second))
		time.Sleep(10 * time.Second)
		if n := len(seen.of(locker.EventRenewed)); n < 9 {
			t.Errorf("%d events of renewals in 10s", n)
		}
	})
}

// A loss that is noticed while Close waits for the last events is no race.
func TestLossDuringClose(t *testing.T) {
	for range 300 {
		l := locker.New(newStub(), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventLost {
				time.Sleep(100 * time.Microsecond)
			}
		}), locker.WithSafetyMargin(0))
		var locks []*locker.Lock
		for i := range 8 {
			locks = append(locks, acquire(t, l, fmt.Sprint(i), locker.WithTTL(2*time.Millisecond), locker.WithoutRenewal()))
		}
		var group sync.WaitGroup
		var over atomic.Bool
		for _, k := range locks {
			group.Go(func() {
				for !over.Load() && k.Err() == nil {
					runtime.Gosched()
				}
			})
		}
		time.Sleep(1900 * time.Microsecond)
		_ = l.Close()
		over.Store(true)
		group.Wait()
	}
}

// Whatever the order in which locks are taken, re-entered, lengthened, lost, broken,
// released and closed, and however slow the observers are and wherever they panic, each
// ID's events come in order and to an end, and nothing is left.
func TestEventsOfEveryOrder(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { everyOrder(t, &random{r: rand.New(rand.NewPCG(seed, 1))}) })
		})
	}
}

// random has the decisions of one run.
type random struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (r *random) below(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.r.IntN(n)
}

func (r *random) pause() { time.Sleep(time.Duration(r.below(700)) * time.Millisecond) }

// observe is slow and, in a caller's goroutine, may panic.
func (r *random) observe(_ context.Context, e locker.Event) {
	if r.below(3) == 0 {
		r.pause()
	}
	switch e.Kind {
	case locker.EventWaiting, locker.EventAcquired, locker.EventReentered:
		if r.below(10) == 0 {
			panic("observer")
		}
	}
}

// disturb makes a store answer late, wrong, or not at all.
func (r *random) disturb(p *pusher) {
	p.Driver.NotifyLoss(func(h driver.Hold, err error) { p.notify(h, err) })
	p.renew = func(ctx context.Context, rn driver.Renewal, next renewFunc) error {
		switch r.below(6) {
		case 0:
			return errDown
		case 1:
			<-ctx.Done()
			return ctx.Err()
		case 2:
			r.pause()
		}
		return next(ctx, rn)
	}
	p.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
		if r.below(6) == 0 {
			<-ctx.Done()
			return ctx.Err()
		}
		return next(ctx, h)
	}
	p.acquire = func(ctx context.Context, rq driver.Request, next acquireFunc) (driver.Grant, error) {
		g, err := next(ctx, rq)
		if r.below(4) == 0 {
			r.pause()
		}
		if err == nil && r.below(8) == 0 {
			_ = p.Driver.Release(ctx, rq.Hold(g.Token)) // by an operator
			p.notify(rq.Hold(g.Token), driver.ErrLost)
		}
		return g, err
	}
}

func everyOrder(t *testing.T, r *random) {
	p := &pusher{stub: newStub()}
	r.disturb(p)
	var seen events
	l := locker.New(p, locker.WithObserver(seen.add), locker.WithObserver(r.observe))
	var group sync.WaitGroup
	for i := range 6 {
		group.Go(func() {
			for range 12 {
				caught(func() { r.use(t, l, fmt.Sprint("owner", i%2)) })
			}
		})
	}
	if r.below(2) == 0 {
		group.Wait()
	}
	time.Sleep(time.Duration(r.below(20)) * time.Second)
	_ = l.Close()
	group.Wait()
	time.Sleep(2 * time.Minute)
	checkEvents(t, seen.all())
	leases, owners, removals, scheduled := l.Kept()
	if n := l.Undelivered(); leases+owners+removals+scheduled+n != 0 {
		t.Errorf("%d leases, %d owners, %d removals, %d scheduled and %d undelivered are left", leases, owners, removals, scheduled, n)
	}
}

// use takes a lock, or three, uses it in some way, and releases it.
func (r *random) use(t *testing.T, l *locker.Client, owner string) {
	seconds := func(least, most int) time.Duration { return time.Duration(least+r.below(most)) * time.Second }
	opts := []locker.Option{locker.WithTTL(seconds(1, 3)), locker.WithWait(seconds(0, 5))}
	if r.below(3) == 0 {
		opts = append(opts, locker.WithoutRenewal())
	}
	if r.below(2) == 0 {
		opts = append(opts, locker.WithOwner(owner))
	}
	ctx, cancel := context.WithTimeout(context.Background(), seconds(1, 8))
	defer cancel()
	var k *locker.Lock
	var err error
	if r.below(3) == 0 {
		k, err = locker.AcquireAll(ctx, l, []string{"a", "b", "c"}, opts...)
	} else if k, err = l.Acquire(ctx, string(rune('a'+r.below(3))), opts...); errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
	if err != nil {
		return
	}
	defer func() { _ = k.Release(context.Background()) }()
	r.pause()
	switch m := k.Locks()[0]; r.below(5) {
	case 0:
		_ = k.Extend(ctx, 3*time.Second)
	case 1:
		_ = l.Break(ctx, m.Name(), m.Token())
	case 2:
		if inner, err := l.Acquire(k.Context(ctx), m.Name(), locker.WithTTL(5*time.Second)); err == nil {
			defer func() { _ = inner.Release(ctx) }()
		}
	case 3:
		<-k.Done()
	}
	r.pause()
}

// checkEvents fails unless the events of each ID come in order, and to an end.
func checkEvents(t *testing.T, all []locker.Event) {
	byID := map[uint64][]locker.EventKind{}
	for _, e := range all {
		byID[e.ID] = append(byID[e.ID], e.Kind)
	}
	for id, kinds := range byID {
		state := 0 // 1: waiting, 2: held, 3: over
		for i, k := range kinds {
			ok := false
			switch k {
			case locker.EventWaiting, locker.EventRejoined:
				ok, state = state < 2, 1
			case locker.EventAcquired:
				ok, state = state < 2, 2
			case locker.EventReentered, locker.EventFailed:
				ok, state = state < 2, 3
			case locker.EventRenewed, locker.EventRenewFailed:
				ok = state == 2
			case locker.EventLost, locker.EventReleased:
				ok, state = state == 2, 3
			}
			if !ok {
				t.Errorf("%d: %v: the event at %d is out of order", id, kinds, i)
				break
			}
		}
		if state != 3 {
			t.Errorf("%d: %v do not end", id, kinds)
		}
	}
}

// Close waits until observers were notified of a release that was under way, within its
// bound.
func TestCloseWaitsForTheEventOfARelease(t *testing.T) {
	for _, slow := range []time.Duration{time.Second, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			var notified atomic.Bool
			l := locker.New(memory.New(), locker.WithObserver(func(_ context.Context, e locker.Event) {
				if e.Kind == locker.EventReleased {
					time.Sleep(slow)
					notified.Store(true)
				}
			}))
			k := acquire(t, l, "a")
			go func() { _ = k.Release(context.Background()) }()
			time.Sleep(time.Millisecond)
			begun := time.Now()
			want(t, l.Close(), nil)
			if d := time.Since(begun); notified.Load() != (slow == time.Second) || d > locker.DefaultReleaseTimeout {
				t.Errorf("an observer that takes %v: Close returned after %v, notified: %v", slow, d, notified.Load())
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

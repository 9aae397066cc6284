package locker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// A machine that was suspended knows at once that its leases are over, though
// the monotonic clock stood still.
func TestSuspendedMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		l := locker.New(newStub(), locker.WithSuspension(func() time.Duration { return time.Duration(asleep.Load()) }))
		defer l.Close()
		watched := acquire(t, l, "a", locker.WithTTL(30*time.Second))
		asked := acquire(t, l, "b", locker.WithTTL(30*time.Second))
		long := acquire(t, l, "c", locker.WithTTL(time.Hour))
		asleep.Store(int64(time.Minute))
		want(t, asked.Err(), locker.ErrLost)
		begun := time.Now()
		<-watched.Done()
		if d := time.Since(begun); d > time.Second {
			t.Errorf("notified %v after the machine woke", d)
		}
		if long.Err() != nil {
			t.Error("a lease of an hour was lost in a minute")
		}
		// A lease that is taken afterwards has its whole length.
		k := acquire(t, l, "d", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		begun = time.Now()
		<-k.Done()
		if d := time.Since(begun); d != 9900*time.Millisecond {
			t.Errorf("valid for %v of 10s", d)
		}
	})
}

// A request that was under way while the machine was suspended is counted from
// before that.
func TestSuspendedWhileAsking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			asleep.Store(int64(time.Minute))
			time.Sleep(time.Millisecond)
			return g, err
		}
		l := locker.New(s, locker.WithSuspension(func() time.Duration { return time.Duration(asleep.Load()) }))
		defer l.Close()
		_, err := l.TryAcquire(context.Background(), "a")
		want(t, err, locker.ErrLost)
	})
}

// The timeout of a short lease does not bound the renewal of long ones.
func TestUrgentRenewalsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slow{Driver: memory.New()}
		l := locker.New(d)
		defer l.Close()
		long := acquire(t, l, "long", locker.WithTTL(30*time.Second))
		time.Sleep(10*time.Second - 20*time.Millisecond)
		acquire(t, l, "short", locker.WithTTL(60*time.Millisecond))
		time.Sleep(25 * time.Second)
		if err := long.Err(); err != nil || d.failed.Load() > 0 {
			t.Errorf("%v; %d renewals of the long lease were given up", err, d.failed.Load())
		}
	})
}

// slow takes a second for a batch with a long lease in it.
type slow struct {
	*memory.Driver
	failed atomic.Int64
}

func (d *slow) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	for i, r := range rs {
		if r.TTL >= time.Second {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				d.failed.Add(1)
				errs[i] = ctx.Err()
				continue
			}
		}
		errs[i] = d.Renew(ctx, r.Hold, r.TTL)
	}
	return errs
}

// A batch with too few answers is a failed request.
func TestShortAnswerToABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &events{}
		d := &short{Driver: memory.New()}
		l := locker.New(d, locker.WithObserver(told.add))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(3*time.Second))
		time.Sleep(1500 * time.Millisecond)
		if k.Err() != nil || len(told.of(locker.EventRenewFailed)) == 0 {
			t.Errorf("%v, %d failed renewals", k.Err(), len(told.of(locker.EventRenewFailed)))
		}
	})
}

type short struct{ *memory.Driver }

func (*short) RenewAll(context.Context, []driver.Renewal) []error { return nil }

// The context of an acquisition that has returned starts nothing.
func TestContextAskedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		var kept context.Context
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			kept = ctx
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a")
		select {
		case <-kept.Done():
		default:
			t.Error("the context of an acquisition that has returned is alive")
		}
	})
}

// A driver that embeds another one and overrides Renew, and nothing else, is asked
// through it.
func TestEmbeddedRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(&failing{memory.New()})
		defer l.Close()
		<-acquire(t, l, "a", locker.WithTTL(time.Second)).Done()
	})
}

type failing struct{ *memory.Driver }

func (*failing) Renew(context.Context, driver.Hold, time.Duration) error { return errDown }

func TestMemoryTokensGrowForEver(t *testing.T) {
	last := uint64(0)
	for range 3 {
		l, err := locker.Open(t.Context(), "memory://tokens")
		if err != nil {
			t.Fatal(err)
		}
		k := acquire(t, l, "a")
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		_ = l.Close()
	}
}

func TestWithoutReentry(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	ctx := context.Background()
	k := acquire(t, l, "a", locker.WithOwner("me"))
	for _, ctx := range []context.Context{ctx, k.Context(ctx)} {
		_, err := l.TryAcquire(ctx, "a", locker.WithOwner("me"), locker.WithoutReentry())
		want(t, err, locker.ErrNotAcquired)
	}
	_, err := l.TryAcquire(k.Context(ctx), "a", locker.WithoutReentry())
	want(t, err, locker.ErrNotAcquired)
	again, err := l.TryAcquire(k.Context(ctx), "a")
	if err != nil {
		t.Fatal(err)
	}
	release(t, again)
	release(t, k)
}

func TestFromContext(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	if k, ok := locker.FromContext(t.Context()); ok {
		t.Errorf("found %v in an empty context", k)
	}
	err := locker.Do(t.Context(), l, "outer", func(ctx context.Context) error {
		outer, _ := locker.FromContext(ctx)
		return locker.Do(ctx, l, "inner", func(ctx context.Context) error {
			k, ok := locker.FromContext(ctx)
			if !ok || k.Name() != "inner" || k.Token() <= outer.Token() {
				t.Errorf("found %v", k)
			}
			return nil
		})
	})
	if err != nil {
		t.Error(err)
	}
	group, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	if k, _ := locker.FromContext(group.Context(t.Context())); k != group {
		t.Error("not the group")
	}
	release(t, group)
}

// A release that the store does not answer is no error of Do; a loss is.
func TestDoAndTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := &events{}
		s := newStub()
		l := locker.New(s, locker.WithObserver(told.add), locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		back := s.away(errDown)
		ran := 0
		if err := locker.Do(t.Context(), l, "a", func(context.Context) error { ran++; return nil }); err != nil || ran != 1 {
			t.Errorf("the work ran %d times: %v", ran, err)
		}
		if r := told.of(locker.EventReleased); len(r) != 1 || !errors.Is(r[0].Err, errDown) {
			t.Errorf("events %+v", r)
		}
		back()
		errWork := errors.New("work failed")
		err := locker.Do(t.Context(), l, "b", func(ctx context.Context) error {
			k, _ := locker.FromContext(ctx)
			_ = l.Break(context.WithoutCancel(ctx), "b", k.Token())
			return errWork
		})
		want(t, err, errWork)
		want(t, err, locker.ErrLost)
	})
}

func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		other := locker.New(s.Join())
		defer other.Close()
		free := func(name string) time.Duration {
			begun := time.Now()
			release(t, acquire(t, other, name))
			return time.Since(begun)
		}
		hold := locker.WithMinHold(time.Minute)
		l := locker.New(s)
		k := acquire(t, l, "released", hold, locker.WithTTL(10*time.Second))
		time.Sleep(20 * time.Second)
		release(t, k)
		want(t, k.Release(t.Context()), locker.ErrReleased)
		if d := free("released"); d != 40*time.Second {
			t.Errorf("free %v after a release at 20s, want 40s", d)
		}
		k = acquire(t, l, "long", hold, locker.WithTTL(10*time.Second))
		time.Sleep(10 * time.Minute)
		if err := k.Err(); err != nil {
			t.Errorf("not renewed after the minimum hold: %v", err)
		}
		release(t, k)
		if d := free("long"); d != 0 {
			t.Errorf("free %v after a release at 10m", d)
		}
		acquire(t, l, "closed", hold)
		begun := time.Now()
		if err := l.Close(); err != nil || time.Since(begun) != 0 {
			t.Errorf("Close took %v: %v", time.Since(begun), err)
		}
		if d := free("closed"); d != time.Minute {
			t.Errorf("free %v after Close, want 1m", d)
		}
	})
}

func TestMinHoldOfAClientThatIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func() *locker.Client {
			l, err := locker.Open(t.Context(), "memory://min-hold")
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		l := open()
		release(t, acquire(t, l, "a", locker.WithMinHold(time.Minute)))
		_ = l.Close()
		l = open()
		defer l.Close()
		begun := time.Now()
		release(t, acquire(t, l, "a", locker.WithMinHold(time.Second)))
		if d := time.Since(begun); d != time.Minute {
			t.Errorf("granted again after %v", d)
		}
	})
}

func TestMinHoldLimits(t *testing.T) {
	s := &limited{newStub()}
	l := locker.New(s)
	defer l.Close()
	_, err := l.Acquire(t.Context(), "a", locker.WithMinHold(2*time.Minute))
	want(t, err, locker.ErrUnsupported)
	if n := s.queueLen(t, "a"); n != 0 {
		t.Errorf("%d tickets", n)
	}
	k := acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithOwner("me"))
	_, err = l.Acquire(t.Context(), "a", locker.WithMinHold(2*time.Minute), locker.WithOwner("me"))
	want(t, err, locker.ErrInvalidOption)
	release(t, acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithOwner("me")))
	release(t, k)
}

type limited struct{ *stub }

func (*limited) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MaxTTL: time.Minute, Crash: ttl}
}

// A provisional lease becomes the minimum hold at once.
func TestMinHoldOfAProvisionalLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			r.TTL = 3 * time.Second
			g, err := next(ctx, r)
			g.Claim = 3 * time.Second
			return g, err
		}
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a", locker.WithMinHold(time.Minute), locker.WithTTL(10*time.Second))
		synctest.Wait()
		q, _ := l.Inspect(t.Context(), "a")
		if r := q.Tickets[0].Remaining; r < 59*time.Second {
			t.Errorf("the lease has %v left, want the minimum hold", r)
		}
	})
}

// Observers get the context of the call, and every acquisition that waits ends with
// an event.
func TestObserversBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(context.Background(), key{}, "span")
		var mu sync.Mutex
		waiting, kinds := 0, map[locker.EventKind]int{}
		l := locker.New(newStub(), locker.WithObserver(func(ctx context.Context, e locker.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds[e.Kind]++
			if e.Kind == locker.EventWaiting {
				waiting++
			}
			if e.Waited {
				waiting--
			}
			if ctx.Value(key{}) != "span" || e.Kind != locker.EventAcquired && e.Kind != locker.EventWaiting && ctx.Err() != nil && e.Kind != locker.EventFailed {
				t.Errorf("%v came with %v", e.Kind, ctx)
			}
		}))
		defer l.Close()
		k, err := l.Acquire(ctx, "a", locker.WithTTL(3*time.Second), locker.WithOwner("me"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(ctx, "a", locker.WithWait(2*time.Second))
		want(t, err, locker.ErrNotAcquired)
		_, err = l.TryAcquire(ctx, "a")
		want(t, err, locker.ErrNotAcquired)
		time.AfterFunc(time.Second, func() { _ = k.Release(ctx) })
		k, err = l.Acquire(ctx, "a", locker.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := l.Break(ctx, "a", k.Token()); err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if waiting != 0 || kinds[locker.EventWaiting] != 2 || kinds[locker.EventFailed] != 2 || kinds[locker.EventLost] != 1 || kinds[locker.EventRenewed] == 0 {
			t.Errorf("%d still wait; %v", waiting, kinds)
		}
	})
}

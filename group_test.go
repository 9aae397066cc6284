package locker_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestAcquireAllDoesNotDeadlock(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	orders := [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "a", "c", "a"}}
	var group sync.WaitGroup
	inside := 0
	for i := range 30 {
		group.Go(func() {
			k, err := locker.AcquireAll(context.Background(), l, orders[i%3])
			if err != nil {
				t.Error(err)
				return
			}
			inside++ // the race detector watches
			if err := k.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if inside != 30 {
		t.Errorf("%d grants, want 30", inside)
	}
}

func TestAcquireAllIsAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		ctx := context.Background()
		blocker := acquire(t, l, "c")
		begun := time.Now()
		_, err := locker.AcquireAll(ctx, l, []string{"c", "a", "b"}, locker.WithWait(3*time.Second))
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("waited %v of 3s", d)
		}
		if s.queueLen(t, "a")+s.queueLen(t, "b") != 0 {
			t.Error("some are held")
		}
		slow := acquire(t, l, "b")
		time.AfterFunc(2*time.Second, func() { _ = slow.Release(ctx) })
		begun = time.Now()
		_, err = locker.AcquireAll(ctx, l, []string{"c", "b"}, locker.WithWait(3*time.Second))
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("waited %v of 3s in all", d)
		}
		release(t, blocker)
		k, err := locker.AcquireAll(ctx, l, []string{"c", "a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		locks := k.Locks()
		if k.Name() != "a,b,c" || len(locks) != 3 || k.Token() != locks[2].Token() || k.Token() <= locks[0].Token() {
			t.Errorf("name %q, token %d", k.Name(), k.Token())
		}
		again, err := l.Acquire(k.Context(ctx), "b")
		if err != nil {
			t.Fatalf("re-entry of a member: %v", err)
		}
		release(t, again)
		if err := k.Extend(ctx, time.Minute); err != nil {
			t.Fatal(err)
		}
		release(t, k)
		want(t, k.Release(ctx), locker.ErrReleased)
		want(t, k.Err(), locker.ErrReleased)
		if s.queueLen(t, "a")+s.queueLen(t, "b")+s.queueLen(t, "c") != 0 {
			t.Error("some are still held")
		}
	})
}

func TestGroupEndsWithAMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		ctx := context.Background()
		k, err := locker.AcquireAll(ctx, l, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		work := k.Context(ctx)
		if err := l.Break(ctx, "b", k.Locks()[1].Token()); err != nil {
			t.Fatal(err)
		}
		<-work.Done()
		want(t, context.Cause(work), locker.ErrLost)
		want(t, k.Err(), locker.ErrLost)
		want(t, k.Release(ctx), locker.ErrLost)
		if s.queueLen(t, "a") != 0 {
			t.Error("the other member is still held")
		}
	})
}

// A group is not held when one of its members is known to be lost, though that one's contexts
// still end.
func TestGroupKnowsOfALoss(t *testing.T) {
	for range 10 {
		p := &pusher{stub: newStub()}
		l := locker.New(p)
		g, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		a := g.Locks()[0]
		for range 200 {
			a.Context(t.Context())
		}
		q, err := p.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		go p.notify(driver.Hold{Name: "a", ID: q[0].ID, Token: q[0].Token}, errors.New("deleted"))
		for a.Err() == nil {
			runtime.Gosched()
		}
		want(t, g.Err(), locker.ErrLost)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

// AcquireAll fails at once if the first name is lost, by the clock or by Break, while the
// second is waited for.
func TestMemberIsLostDuringTheWait(t *testing.T) {
	for how, opts := range map[string][]locker.Option{
		"a fixed lease": {locker.WithTTL(time.Second), locker.WithoutRenewal()},
		"break":         nil,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			l := locker.New(s)
			defer l.Close()
			blocker := acquire(t, l, "b")
			if opts == nil {
				time.AfterFunc(time.Second, func() {
					q, _ := l.Inspect(context.Background(), "a")
					if err := l.Break(context.Background(), "a", q.Tickets[0].Token); err != nil {
						t.Error(err)
					}
				})
			}
			begun := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_, err := locker.AcquireAll(ctx, l, []string{"a", "b"}, opts...)
			want(t, err, locker.ErrLost)
			if took := time.Since(begun); took > 1100*time.Millisecond {
				t.Errorf("%s: notified after %v, want 1s", how, took)
			}
			want(t, blocker.Release(context.Background()), nil)
			time.Sleep(time.Second) // the lease ends a little earlier for its holder than for the store
			if n := s.queueLen(t, "a") + s.queueLen(t, "b"); n != 0 {
				t.Errorf("%s: %d tickets are left", how, n)
			}
		})
	}
}

// The release of a group has one bound, however many its members are.
func TestReleaseOfAGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		names := strings.Split("a b c d e f g h i j k l", " ")
		k, err := locker.AcquireAll(context.Background(), l, names)
		if err != nil {
			t.Fatal(err)
		}
		s.set(func(s *stub) { s.release = hung(errRefused).release })
		begun := time.Now()
		want(t, k.Release(context.Background()), locker.ErrUnavailable)
		if d := time.Since(begun); d > 5100*time.Millisecond {
			t.Errorf("took %v", d)
		}
		s.set(func(s *stub) { s.release = nil })
	})
}

// A wait limit among the defaults of the Client bounds AcquireAll as a whole.
func TestDefaultWaitBoundsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New(), locker.WithDefaults(locker.WithWait(3*time.Second)))
		defer l.Close()
		slow := acquire(t, l, "a")
		acquire(t, l, "b")
		time.AfterFunc(2*time.Second, func() { _ = slow.Release(context.Background()) })
		begun := time.Now()
		_, err := locker.AcquireAll(context.Background(), l, []string{"a", "b"})
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d != 3*time.Second {
			t.Errorf("waited %v of 3s in all", d)
		}
	})
}

func TestGroupIsReleasedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				time.Sleep(time.Second) // so that the second call comes meanwhile
				return next(ctx, h)
			}
		})
		first := make(chan error)
		go func() { first <- k.Release(t.Context()) }()
		time.Sleep(500 * time.Millisecond)
		want(t, k.Release(t.Context()), locker.ErrReleased)
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

func TestGroupAndClose(t *testing.T) {
	s := newStub()
	l := locker.New(s)
	k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	want(t, k.Err(), locker.ErrReleased)
	want(t, k.Release(t.Context()), locker.ErrReleased)

	l = locker.New(memory.New())
	_, err = locker.AcquireAll(t.Context(), closing{l}, []string{"a", "b"})
	want(t, err, locker.ErrClosed)
}

// closing closes its Client after the second acquisition.
type closing struct{ *locker.Client }

func (c closing) Acquire(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	k, err := c.Client.Acquire(ctx, name, opts...)
	if name == "b" {
		_ = c.Client.Close()
	}
	return k, err
}

// A member that was released alone, which it should not be, ends the group; Release of the
// group does not leave the others held for ever.
func TestGroupAfterTheReleaseOfAMember(t *testing.T) {
	s := newStub()
	l := locker.New(s)
	defer l.Close()
	k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"})
	if err != nil {
		t.Fatal(err)
	}
	release(t, k.Locks()[0])
	want(t, k.Err(), locker.ErrReleased)
	want(t, k.Release(t.Context()), locker.ErrReleased)
	if s.queueLen(t, "b") != 0 {
		t.Error("the other member is still held")
	}
	want(t, k.Release(t.Context()), locker.ErrReleased)
}

// A wait limit bounds a group of groups as a whole.
func TestWaitLimitOfAGroupOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		for name, held := range map[string]time.Duration{"a": time.Second, "b'": time.Second, "c": time.Hour} {
			k := acquire(t, l, name)
			time.AfterFunc(held+time.Duration(name[0]-'a')*500*time.Millisecond, func() { _ = k.Release(context.Background()) })
		}
		begun := time.Now()
		_, err := locker.AcquireAll(t.Context(), couples{l}, []string{"a", "b", "c"}, locker.WithWait(2*time.Second))
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d != 2*time.Second {
			t.Errorf("ended after %v, want 2s", d)
		}
		time.Sleep(2 * time.Hour)
	})
}

// Errors of groups, and of the types that are bound to a name, name operation, lock and store.
func TestErrorsAreErrors(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	ctx := context.Background()
	group := func() *locker.Lock {
		k, err := locker.AcquireAll(ctx, l, []string{"b", "a"})
		want(t, err, nil)
		return k
	}
	released := group()
	release(t, released)
	_, none := locker.AcquireAll(ctx, l, nil)
	_, invalid := locker.AcquireAll(ctx, l, []string{""})
	_, hidden := locker.AcquireAll(ctx, couples{l}, nil)
	_, mutex := locker.NewMutex(l, "m", locker.Shared()).Lock(ctx)
	_, try := locker.NewSemaphore(l, "m", 2, locker.Limit(3)).TryAcquire(ctx)
	do := locker.NewRWMutex(l, "m", locker.Shared()).Do(ctx, nil)
	for _, c := range []struct {
		err, is         error
		op, name, store string
	}{
		{released.Release(ctx), locker.ErrReleased, "release all", "a,b", "memory"},
		{none, locker.ErrInvalidName, "acquire all", "", "memory"},
		{invalid, locker.ErrInvalidName, "acquire all", "", "memory"},
		{hidden, locker.ErrInvalidName, "acquire all", "", ""},
		{mutex, locker.ErrInvalidOption, "acquire", "m", "memory"},
		{try, locker.ErrInvalidOption, "try to acquire", "m", "memory"},
		{do, locker.ErrInvalidOption, "acquire", "m", "memory"},
	} {
		want(t, c.err, c.is)
		var e *locker.Error
		if !errors.As(c.err, &e) || e.Op != c.op || e.Name != c.name || e.Store != c.store {
			t.Errorf("%v is %+v, want %q of %q on %q", c.err, e, c.op, c.name, c.store)
		}
	}
}

// Close ends a group that is being acquired, as it ends any acquisition: with ErrClosed. The
// handles of locks that it has released are released.
func TestGroupAndHandlesAgreeAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		other := locker.New(s.Join())
		defer other.Close()
		acquire(t, other, "b")
		l := locker.New(s)
		single := acquire(t, l, "s")
		group, err := locker.AcquireAll(t.Context(), l, []string{"x", "y"})
		want(t, err, nil)
		time.AfterFunc(time.Second, func() { _ = l.Close() })
		_, err = locker.AcquireAll(t.Context(), l, []string{"a", "b"})
		want(t, err, locker.ErrClosed)
		var e *locker.Error
		if !errors.As(err, &e) || errors.Is(err, locker.ErrReleased) || errors.Is(err, locker.ErrLost) {
			t.Errorf("a group that waits when its Client is closed: %v", err)
		}
		_, err = locker.AcquireAll(t.Context(), l, []string{"a", "b"})
		want(t, err, locker.ErrClosed)
		for _, k := range []*locker.Lock{single, group} {
			want(t, k.Err(), locker.ErrReleased)
			want(t, k.Release(t.Context()), locker.ErrReleased)
		}
	})
}

// The context of an event has the values of the acquisition's, but not the time at which
// AcquireAll began: an observer's own acquisition has its whole wait limit.
func TestObserverOfAGroupHasItsOwnLimit(t *testing.T) {
	for _, kind := range []locker.EventKind{locker.EventLost, locker.EventFailed} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			var l *locker.Client
			got := make(chan error, 1)
			l = locker.New(s, locker.WithObserver(func(ctx context.Context, e locker.Event) {
				if e.Kind != kind {
					return
				}
				k, err := l.Acquire(ctx, "audit", locker.WithWait(time.Second))
				if err == nil {
					err = k.Release(ctx)
				}
				got <- err
			}))
			defer l.Close()
			other := locker.New(s.Join())
			defer other.Close()
			acquire(t, other, "b")
			names := []string{"a"}
			if kind == locker.EventFailed {
				names = append(names, "b")
			}
			k, err := locker.AcquireAll(t.Context(), l, names, locker.WithTTL(10*time.Second), locker.WithoutRenewal(), locker.WithWait(2*time.Second))
			if (k == nil) != (kind == locker.EventFailed) {
				t.Fatal(err)
			}
			if err := <-got; err != nil {
				t.Errorf("%v: %v", kind, err)
			}
		})
	}
}

// Extend of a group takes no longer than that of one lock when the store does not answer, however large the group is.
func TestExtendOfAGroupIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		var names []string
		for i := range 65 {
			names = append(names, string(rune('a'+i)))
		}
		k, err := locker.AcquireAll(t.Context(), l, names, locker.WithTTL(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		s.set(func(s *stub) {
			s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
				<-ctx.Done()
				return ctx.Err()
			}
		})
		begun := time.Now()
		want(t, k.Extend(t.Context(), 2*time.Hour), locker.ErrUnavailable)
		if d := time.Since(begun); d > locker.DefaultAnswerTimeout {
			t.Errorf("returned after %v", d)
		}
	})
}

// AcquireAll is back within 100 ms of its limit on a driver that takes the 50 ms that it may take
// after the end of each context.
func TestLimitOfAGroupOnASlowDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "c")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error {
				<-ctx.Done()
				time.Sleep(50 * time.Millisecond)
				return ctx.Err()
			}
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				g, err := next(ctx, r)
				if err != nil {
					time.Sleep(50 * time.Millisecond)
				}
				return g, err
			}
		})
		begun := time.Now()
		_, err := locker.AcquireAll(t.Context(), l, []string{"a", "b", "c"}, locker.WithWait(time.Second))
		want(t, err, locker.ErrNotAcquired)
		if late := time.Since(begun) - time.Second; late > 100*time.Millisecond {
			t.Errorf("AcquireAll returned %v after its limit", late)
		}
		s.set(func(s *stub) { s.release, s.acquire = nil, nil })
		time.Sleep(time.Minute)
		for _, name := range []string{"a", "b"} {
			if n := s.queueLen(t, name); n != 0 {
				t.Errorf("%d tickets of %s are left", n, name)
			}
		}
	})
}

// Of two Releases of a group at once, one releases it, and the other finds it released.
func TestGroupReleasedTwiceAtOnce(t *testing.T) {
	for range 200 {
		l := locker.New(newStub())
		k, err := locker.AcquireAll(t.Context(), l, strings.Split("abcdefgh", ""))
		if err != nil {
			t.Fatal(err)
		}
		contexts := make([]context.Context, 100)
		for i := range contexts {
			contexts[i] = k.Context(t.Context())
		}
		var group sync.WaitGroup
		errs := make([]error, 2)
		for i := range errs {
			group.Go(func() {
				errs[i] = k.Release(t.Context())
				if slices.ContainsFunc(contexts, func(c context.Context) bool { return c.Err() == nil }) || k.Err() == nil {
					t.Errorf("Release returned %v before the group had ended", errs[i])
				}
			})
		}
		group.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs...), locker.ErrReleased) {
			t.Errorf("released twice at once: %v; %v", errs[0], errs[1])
		}
		_ = l.Close()
	}
}

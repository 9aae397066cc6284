package locker_test

import (
	"context"
	"errors"
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
		seen := &events{}
		s := newStub()
		l := locker.New(s, locker.WithObserver(seen.add), locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		back := s.away(errDown)
		ran := 0
		begun := time.Now()
		if err := locker.Do(t.Context(), l, "a", func(context.Context) error { ran++; return nil }); err != nil || ran != 1 {
			t.Errorf("the work ran %d times: %v", ran, err)
		}
		if d := time.Since(begun); d > 100*time.Millisecond {
			t.Errorf("Do returned %v after its work", d)
		}
		time.Sleep(time.Second) // until the bound for a release
		synctest.Wait()
		if r := seen.of(locker.EventReleased); len(r) != 1 || !errors.Is(r[0].Err, errDown) {
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

func TestDo(t *testing.T) {
	s := newStub()
	l := locker.New(s)
	defer l.Close()
	ctx := context.Background()
	errWork := errors.New("work failed")
	err := locker.Do(ctx, l, "a", func(ctx context.Context) error {
		return locker.Do(ctx, l, "a", func(context.Context) error { return errWork }) // re-enters
	})
	want(t, err, errWork)

	err = locker.Do(ctx, l, "a", func(ctx context.Context) error {
		q, _ := l.Inspect(ctx, "a")
		if err := l.Break(context.Background(), "a", q.Tickets[0].Token); err != nil {
			return err
		}
		<-ctx.Done()
		return errWork
	})
	want(t, err, errWork)
	want(t, err, locker.ErrLost)

	func() {
		defer func() { _ = recover() }()
		_ = locker.Do(ctx, l, "a", func(context.Context) error { panic("oops") })
	}()
	if s.queueLen(t, "a") != 0 {
		t.Error("still held after a panic")
	}
}

// What the function returned stays visible when the lock was lost.
func TestDoError(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	for _, result := range []error{nil, errors.New("work failed"), locker.ErrUnavailable} {
		err := locker.Do(t.Context(), l, "a", func(ctx context.Context) error {
			k, _ := locker.FromContext(ctx)
			want(t, l.Break(context.Background(), "a", k.Token()), nil)
			return result
		})
		var lost *locker.DoError
		if !errors.As(err, &lost) || lost.Result != result || !errors.Is(lost.Lost, locker.ErrLost) || !errors.Is(err, locker.ErrLost) { //nolint:errorlint // the very error
			t.Errorf("fn returned %v, Do returned %v", result, err)
		}
		if result != nil {
			want(t, err, result)
		}
	}
}

// The events of a release that Do has left to the background come there, for a group too,
// and Close waits for them.
func TestDoLeavesTheEventsToTheBackground(t *testing.T) {
	for _, group := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			seen := &events{}
			s := newStub()
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				time.Sleep(time.Second)
				return next(ctx, h)
			}
			c := locker.New(s, locker.WithObserver(seen.add))
			var l locker.Locker = c
			if group {
				l = couples{c}
			}
			want(t, locker.Do(t.Context(), l, "a", func(context.Context) error { return nil }), nil)
			if n := len(seen.of(locker.EventReleased)); n != 0 {
				t.Errorf("%d releases, before the store has answered", n)
			}
			want(t, c.Close(), nil)
			wanted := map[bool]int{false: 1, true: 2}[group]
			if r := seen.of(locker.EventReleased); len(r) != wanted || r[0].Err != nil {
				t.Errorf("events %+v, want %d", r, wanted)
			}
		})
	}
}

// couples is a wrapper that takes two names for one.
type couples struct{ locker.Locker }

func (p couples) Acquire(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return locker.AcquireAll(ctx, p.Locker, []string{name, name + "'"}, opts...)
}

// Nothing runs without the lock: Do of a handle that has ended fails.
func TestDoOfAnEndedLock(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	for _, group := range []bool{false, true} {
		for end, sentinel := range map[string]error{"released": locker.ErrReleased, "lost": locker.ErrLost} {
			k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"}[:map[bool]int{false: 1, true: 2}[group]])
			want(t, err, nil)
			one := k.Locks()[0]
			if !group {
				k = one
			}
			if end == "lost" {
				want(t, l.Break(t.Context(), "a", one.Token()), nil)
				_ = one.Extend(t.Context(), time.Minute) // notices it
			} else {
				release(t, k)
			}
			err = k.Do(t.Context(), func(context.Context) error { t.Errorf("%s: the function ran", end); return nil })
			want(t, err, sentinel)
			var wrapped *locker.Error
			if lost := new(locker.DoError); errors.As(err, &lost) || !errors.As(err, &wrapped) {
				t.Errorf("%T %v: the function did not run", err, err)
			}
			if q, err := l.Inspect(t.Context(), "b"); err != nil || len(q.Tickets) > 0 {
				t.Errorf("%s: left %v, %v", end, q.Tickets, err)
			}
		}
	}
}

// However the function ends, and however soon Close comes, the release is sent once.
func TestDoIsFollowedByClose(t *testing.T) {
	for how, fn := range map[string]func(context.Context) error{
		"returns": func(context.Context) error { return nil },
		"panics":  func(context.Context) error { panic("oops") },
		"exits":   func(context.Context) error { runtime.Goexit(); return nil },
	} {
		for _, slow := range []time.Duration{0, 70 * time.Millisecond, time.Second} {
			synctest.Test(t, func(t *testing.T) {
				seen := &events{}
				s := newStub()
				var releases atomic.Int64
				s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
					releases.Add(1)
					time.Sleep(slow)
					return next(ctx, h)
				}
				l := locker.New(s, locker.WithObserver(seen.add))
				var group sync.WaitGroup
				group.Go(func() {
					defer func() { _ = recover() }()
					_ = locker.Do(t.Context(), l, "a", func(ctx context.Context) error {
						return locker.Do(ctx, l, "a", fn) // re-enters
					})
				})
				group.Wait()
				want(t, l.Close(), nil)
				if n, events := releases.Load(), len(seen.of(locker.EventReleased)); n != 1 || events != 1 {
					t.Errorf("%s, a release takes %v: %d releases, %d events", how, slow, n, events)
				}
			})
		}
	}
}

// A loss that this process knows of when the function returns is the error of Do, though the
// store takes longer to answer the release than Do waits.
func TestDoTellsALossThatIsKnown(t *testing.T) {
	t.Run("one of several", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
				if h.Name == "b" {
					<-ctx.Done()
					return ctx.Err()
				}
				return next(ctx, h)
			}
			l := locker.New(s, locker.WithReleaseTimeout(time.Second))
			defer l.Close()
			k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"})
			want(t, err, nil)
			begun := time.Now()
			err = k.Do(t.Context(), func(ctx context.Context) error {
				want(t, l.Break(context.WithoutCancel(ctx), "a", k.Locks()[0].Token()), nil)
				<-ctx.Done()
				return nil
			})
			if d := time.Since(begun); d > 100*time.Millisecond {
				t.Errorf("Do took %v", d)
			}
			want(t, err, locker.ErrLost)
		})
	})
	t.Run("suspended", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			var asleep atomic.Int64
			s := newStub()
			s.release = func(context.Context, driver.Hold, releaseFunc) error {
				time.Sleep(200 * time.Millisecond) // it connects again
				return driver.ErrLost
			}
			l := locker.New(s, locker.WithSuspension(func() time.Duration { return time.Duration(asleep.Load()) }))
			defer l.Close()
			err := locker.Do(t.Context(), l, "a", func(context.Context) error {
				asleep.Store(int64(time.Hour))
				return nil
			}, locker.WithTTL(30*time.Second))
			want(t, err, locker.ErrLost)
		})
	})
}

package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
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
		if err := locker.Do(t.Context(), l, "a", func(context.Context) error { ran++; return nil }); err != nil || ran != 1 {
			t.Errorf("the work ran %d times: %v", ran, err)
		}
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

package locker_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// Deadline is when Done is closed unless a renewal succeeds, and each renewal moves it.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(newStub())
		defer l.Close()
		fixed := acquire(t, l, "fixed", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		renewed := acquire(t, l, "renewed", locker.WithTTL(30*time.Second))
		until, first := fixed.Deadline(), renewed.Deadline()
		if first.IsZero() {
			t.Error("a lock that is held has no deadline")
		}
		<-fixed.Done()
		if now := time.Now(); !now.Equal(until) {
			t.Errorf("lost at %v, the deadline was %v", now, until)
		}
		if d := fixed.Deadline(); !d.IsZero() {
			t.Errorf("the deadline of a lost lock is %v", d)
		}
		time.Sleep(time.Second) // the first renewal of the other has succeeded
		if d := renewed.Deadline().Sub(first); d != 10*time.Second {
			t.Errorf("a renewal moved the deadline by %v", d)
		}
		inner, err := l.Acquire(renewed.Context(t.Context()), "renewed")
		if err != nil {
			t.Fatal(err)
		}
		release(t, inner)
		if d := inner.Deadline(); !d.IsZero() || renewed.Deadline().IsZero() {
			t.Errorf("the deadline of a released handle is %v, of one that is not %v", d, renewed.Deadline())
		}
		release(t, renewed)
		if d := renewed.Deadline(); !d.IsZero() {
			t.Errorf("the deadline of a released handle is %v", d)
		}
	})
}

// The deadline of several locks is the earliest, and none if one of them is lost.
func TestDeadlineOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(newStub())
		defer l.Close()
		k, err := locker.AcquireAll(t.Context(), l, []string{"a", "b"})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = k.Release(t.Context()) }() // it is lost
		if d := k.Deadline(); !d.Equal(k.Locks()[0].Deadline()) || d.IsZero() {
			t.Errorf("the deadline is %v, that of the first lock %v", d, k.Locks()[0].Deadline())
		}
		if err := l.Break(t.Context(), "b", k.Locks()[1].Token()); err != nil {
			t.Fatal(err)
		}
		<-k.Done()
		if d := k.Deadline(); !d.IsZero() {
			t.Errorf("the deadline is %v, and one lock is lost", d)
		}
	})
}

// A suspension of the machine brings the deadline closer: Go's clock stands still meanwhile.
func TestDeadlineAfterASuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64
		l := locker.New(newStub(), locker.WithSuspension(func() time.Duration { return time.Duration(asleep.Load()) }))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(30*time.Second))
		before := k.Deadline()
		asleep.Store(int64(10 * time.Second))
		if d := before.Sub(k.Deadline()); d != 10*time.Second {
			t.Errorf("after a suspension of 10s the deadline is %v earlier", d)
		}
		release(t, k)
	})
}

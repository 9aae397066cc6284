package handoff_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver/internal/handoff"
)

// TestRelease hands a lock to the waiter directly behind, if that may rely on it for long enough.
func TestRelease(t *testing.T) {
	const queued = 2400 * time.Millisecond
	for _, c := range []struct {
		name   string
		held   time.Duration // of the ticket before, from the waiter's request on; 0: it is not known to hold
		waited time.Duration
		want   time.Duration // the lease; 0: none
	}{
		{"it holds for long", time.Minute, 100 * time.Millisecond, queued},
		{"it holds for less", 2 * time.Second, 100 * time.Millisecond, 2 * time.Second},
		{"it never held", 0, 100 * time.Millisecond, 0},
		{"its lease is nearly over", 1400 * time.Millisecond, time.Millisecond, 0},
		{"the wait was as long as may be", time.Minute, 400 * time.Millisecond, queued},
		{"the wait was longer", time.Minute, 401 * time.Millisecond, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var b handoff.Book
				w := &handoff.Waiter{ID: "second", Before: "first", Asked: time.Now(), Queued: queued}
				b.Enter(w)
				if c.held > 0 {
					b.Holds("first", time.Now().Add(c.held))
				}
				time.Sleep(c.waited)
				if next, _ := b.Release("another"); next != nil {
					t.Errorf("the release of another ticket hands the lock to %s", next.ID)
				}
				next, lease := b.Release("first")
				if (next == w) != (c.want > 0) || lease != c.want {
					t.Errorf("got %v with a lease of %v, want one of %v", next, lease, c.want)
				}
				if next, _ := b.Release("first"); next != nil {
					t.Error("the lock is handed on twice")
				}
			})
		})
	}
}

// TestLeave: who waits no longer is handed nothing.
func TestLeave(t *testing.T) {
	var b handoff.Book
	w := &handoff.Waiter{ID: "second", Before: "first", Asked: time.Now(), Queued: time.Minute}
	b.Enter(w)
	b.Holds("first", time.Now().Add(time.Minute))
	b.Leave(w.ID)
	b.Leave(w.ID)
	if next, _ := b.Release("first"); next != nil {
		t.Errorf("the lock is handed to %s", next.ID)
	}
}

// TestReleasedWaiter: who is released while it waits is handed nothing, and a ticket that was lost hands nothing on.
func TestReleasedWaiter(t *testing.T) {
	for name, change := range map[string]func(b *handoff.Book){
		"released": func(b *handoff.Book) { b.Release("second") },
		"lost":     func(b *handoff.Book) { b.Lost("first") },
	} {
		var b handoff.Book
		b.Enter(&handoff.Waiter{ID: "second", Before: "first", Asked: time.Now(), Queued: time.Minute})
		b.Holds("first", time.Now().Add(time.Minute))
		change(&b)
		if next, _ := b.Release("first"); next != nil {
			t.Errorf("%s: the lock is handed to %s", name, next.ID)
		}
	}
}

// TestNothingStays: a book keeps nothing of waiters that wait no longer, however their waits end.
func TestNothingStays(t *testing.T) {
	var b handoff.Book
	for i, end := range []func(){
		func() { b.Leave("second") },
		func() { b.Release("first") },
		func() { b.Release("second") },
		func() { b.Holds("first", time.Now().Add(time.Minute)); b.Release("first") },
	} {
		b.Enter(&handoff.Waiter{ID: "second", Before: "first", Asked: time.Now(), Queued: time.Minute})
		if end(); b.Len() > 0 {
			t.Errorf("%d entries stay after end %d", b.Len(), i)
		}
	}
}

// TestOthersStay: a waiter that leaves takes nothing from the one that is directly behind the same ticket now, nor from
// those of other names.
func TestOthersStay(t *testing.T) {
	var b handoff.Book
	other := &handoff.Waiter{ID: "other", Before: "elsewhere", Asked: time.Now(), Queued: time.Minute}
	b.Enter(other)
	b.Holds("elsewhere", time.Now().Add(time.Minute))
	b.Enter(&handoff.Waiter{ID: "second", Before: "first", Asked: time.Now(), Queued: time.Minute})
	w := &handoff.Waiter{ID: "third", Before: "first", Asked: time.Now(), Queued: time.Minute}
	b.Enter(w)
	b.Holds("first", time.Now().Add(time.Minute))
	b.Leave("second")
	if next, _ := b.Release("first"); next != w {
		t.Errorf("the lock is handed to %v, want %v", next, w)
	}
	if next, _ := b.Release("elsewhere"); next != other {
		t.Errorf("the other lock is handed to %v, want %v", next, other)
	}
}

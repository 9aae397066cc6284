package kvqueue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A session is kept alive in time, though the background task has meanwhile planned something later for another one.
func TestKeptAliveBesideALaterPlan(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "0"))
		r := request("a", "1")
		r.TTL = 6 * time.Second // kept alive after two
		w := b.wait(b.e, r)
		time.Sleep(time.Second)
		b.drop(b.e, b.get(b.e, request("b", "2"))) // whose session is idle in ten seconds
		b.stays("a", "1", 20*time.Second)
		b.drop(other, h)
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(0))
	})
}

// A session that is kept alive in time is used for the next ticket, too.
func TestSessionIsUsedAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "0"))
		w := b.wait(b.e, request("a", "1"))
		time.Sleep(5 * time.Minute)
		b.drop(b.e, b.get(b.e, request("b", "2")))
		if n := b.store.opened - 1; n != 1 {
			t.Errorf("%d sessions were opened, want one", n)
		}
		w.cancel()
		b.drop(b.e, w.r.Hold(0))
		b.drop(other, h)
	})
}

// A session that is opened while the engine is closed is ended.
func TestCloseDuringOpen(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.with(func(what, _ string, done bool) error {
			if what == "open" && done {
				time.Sleep(time.Second) // it does not hear of the end of its context
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() { _, err := b.e.Acquire(b.Context(), request("a", "1")); ended <- err }()
		synctest.Wait()
		if err := b.e.Close(); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	})
}

// A ticket is released while its grant is made sure of, and the release is not answered. Nobody has said that the ticket has gone.
func TestReleasedDuringAGrant(t *testing.T) {
	inBubble(t, func(b *bed) {
		r := request("a", "1")
		r.MinHold = time.Second // its lease begins with a keep-alive
		b.store.with(func(what, _ string, done bool) error {
			switch {
			case what == "put", what == "keep" && !done:
				time.Sleep(time.Second)
			case what == "delete":
				return errFakeLost
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() { _, err := b.e.Acquire(b.Context(), r); ended <- err }()
		time.Sleep(2*time.Second + time.Second/2)
		if err := b.e.Release(b.Context(), r.Hold(0)); !errors.Is(err, errFakeLost) {
			t.Errorf("release: %v", err)
		}
		if err := <-ended; err == nil || errors.Is(err, driver.ErrLost) {
			t.Errorf("acquire: %v, want an error that leaves open whether the ticket has gone", err)
		}
		b.store.with(nil)
		b.drop(b.e, r.Hold(0))
	})
}

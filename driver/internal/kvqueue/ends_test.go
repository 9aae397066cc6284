package kvqueue

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A session that is being ended takes no more tickets: the request may be on its way, and would end them.
func TestTicketBesideTheEndOfASession(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.drop(b.e, b.get(b.e, request("a", "1")))
		ends := make(chan struct{})
		b.store.with(func(what, _ string, done bool) error {
			if what == "end" && !done {
				<-ends
			}
			return nil
		})
		time.Sleep(idleFor + time.Second)
		if n := b.store.count("end"); n != 1 {
			t.Fatalf("%d sessions are being ended, want the idle one", n)
		}
		h := b.get(b.e, request("a", "2"))
		close(ends)
		synctest.Wait()
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued, want the one that was granted", n)
		}
		b.drop(b.e, h)
	})
}

// A session is ended ten seconds after its last ticket, however old it is, and serves the next ticket until then. One that takes no
// more tickets is ended with the last one.
func TestWhenASessionIsEnded(t *testing.T) {
	inBubble(t, func(b *bed) {
		hold := func(id string) driver.Hold {
			h := b.get(b.e, request("a", id))
			for range 3 {
				time.Sleep(10 * time.Second)
				if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
					t.Fatal(err)
				}
			}
			return h
		}
		first := hold("1")
		b.drop(b.e, first)
		time.Sleep(idleFor - time.Second)
		second := hold("2")
		if n := b.store.opened; n != 1 || b.store.count("end") != 0 {
			t.Errorf("%d sessions were opened, and %d ended, want one, and none", n, b.store.count("end"))
		}
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && !done {
				return errFakeLost
			}
			return nil
		})
		r := request("b", "3")
		if _, err := b.e.Acquire(b.Context(), r); !errors.Is(err, errFakeLost) {
			t.Fatalf("acquire: %v", err)
		}
		b.store.with(nil)
		_ = b.e.Release(b.Context(), r.Hold(0))
		b.drop(b.e, second)
		synctest.Wait()
		if n := b.store.count("end"); n != 1 {
			t.Errorf("%d sessions were ended, want the one that takes no more tickets", n)
		}
		b.drop(b.e, b.get(b.e, r))
		time.Sleep(idleFor + time.Second)
		if n := b.store.count("end"); n != 2 {
			t.Errorf("%d sessions were ended, want also the one that has had no ticket for ten seconds", n)
		}
	})
}

// The keep-alive with which a fixed lease begins finds that the session is over, of which nobody has heard.
func TestSessionOverBeforeItsGrant(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.unwatched = true
		other := b.another()
		h := b.get(other, request("a", "0"))
		r := request("a", "1")
		r.Renewed = false
		w := b.wait(b.e, r)
		time.Sleep(time.Second) // else the session has just been opened
		b.store.with(func(what, session string, done bool) error {
			if what == "keep" && !done {
				return b.store.End(b.Context(), session)
			}
			return nil
		})
		b.drop(other, h)
		synctest.Wait()
		if !w.done || !errors.Is(w.err, driver.ErrLost) {
			t.Errorf("done %v, %v; want ErrLost", w.done, w.err)
		}
	})
}

// A ticket is the one of its ID only under its name, and with its number.
func TestHoldOfAnotherTicket(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		for _, wrong := range []driver.Hold{{Name: "b", ID: "1"}, {Name: "a", ID: "1", Token: h.Token + 1}} {
			if err := b.e.Renew(b.Context(), wrong, 30*time.Second); !errors.Is(err, driver.ErrLost) {
				t.Errorf("renewal of %+v: %v, want ErrLost", wrong, err)
			}
			if err := b.e.Release(b.Context(), wrong); !errors.Is(err, driver.ErrLost) {
				t.Errorf("release of %+v: %v, want ErrLost", wrong, err)
			}
		}
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued, want 1", n)
		}
		b.drop(b.e, h)
	})
}

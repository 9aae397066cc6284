package kvqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// There is an entry with the key of a new ticket: what is left of an earlier one, or the
// first of two copies of the request. It does not become the new ticket, whose number is
// larger, and it blocks nobody.
func TestOccupied(t *testing.T) {
	for what, wait := range map[string]bool{"waits": true, "tries": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				other := b.get(b.e, request("other", "o")) // opens the session
				left := Ticket{Name: "a", ID: "left", Session: "s1", Entry: Entry{Key: b.store.Key("a", "s1", 0, false), Number: 1}}
				b.store.with(func(what, name string, done bool) error {
					if what == "put" && name == "a" && !done {
						b.store.with(nil)
						b.store.queues["a"] = []Ticket{left}
					}
					return nil
				})
				r := request("a", "1")
				r.Wait = wait
				h := b.get(b.e, r)
				if h.Token <= other.Token {
					t.Errorf("token %d, want one after %d", h.Token, other.Token)
				}
				if n := b.store.queued("a"); n != 1 {
					t.Errorf("%d tickets are queued, want 1", n)
				}
				if err := b.e.Renew(b.Context(), other, 30*time.Second); err != nil {
					t.Errorf("the ticket beside it: %v", err)
				}
				b.drop(b.e, h)
			})
		})
	}
}

// A waiter's entry is removed by hand together with all those ahead, or on its own before
// this driver releases the one ahead. The watch does not show that. The waiter is not
// granted, and whoever is behind it is.
func TestRemovedBeforeGrant(t *testing.T) {
	for what, one := range map[string]struct{ within, wiped bool }{
		"all, of another process":   {within: false, wiped: true},
		"all, of this process":      {within: true, wiped: true},
		"alone, of another process": {within: false, wiped: false},
		"alone, of this process":    {within: true, wiped: false},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.store.unwatched, b.e.opts.LocalWait = true, time.Hour
				holder := b.another()
				if one.within {
					holder = b.e
				}
				h := b.get(holder, request("a", "0"))
				w := b.wait(b.e, request("a", "w"))
				if !one.within {
					time.Sleep(time.Millisecond) // it watches the holder
				}
				gone := []string{"w"}
				if one.wiped {
					gone = append(gone, "0")
				}
				behind := b.wait(b.e, request("a", "behind"))
				b.store.strike("a", gone...)
				if err := holder.Release(b.Context(), h); err != nil && !(one.wiped && errors.Is(err, driver.ErrLost)) {
					t.Fatal(err)
				}
				synctest.Wait()
				if !w.done || !errors.Is(w.err, driver.ErrLost) {
					t.Errorf("the waiter got %v, %v, want ErrLost", w.done, w.err)
				}
				if b.lost["w"] != nil {
					t.Errorf("the loss of a lock that nobody had was reported: %v", b.lost["w"])
				}
				b.granted(behind, true)
				b.drop(b.e, behind.r.Hold(behind.grant.Token))
			})
		})
	}
}

// A waiter is removed while its process waits for the answer to a release, and then another
// process releases what the waiter was still behind. It is not granted beside the one behind it.
func TestRemovedDuringRelease(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.unwatched = true
		other := b.another()
		mine, theirs := b.get(b.e, shared(request("a", "1"), 0)), b.get(other, shared(request("a", "2"), 0))
		w, behind := b.wait(b.e, request("a", "w")), b.wait(other, request("a", "behind"))
		var deleted atomic.Bool
		b.store.with(func(what, _ string, done bool) error {
			switch {
			case what == "delete" && done && !deleted.Swap(true):
				time.Sleep(time.Second)
			case what == "read" && !done:
				time.Sleep(3 * time.Second / 2)
			}
			return nil
		})
		released := make(chan error, 1)
		go func() { released <- b.e.Release(b.Context(), mine) }()
		synctest.Wait()
		b.store.strike("a", "w")
		b.drop(other, theirs)
		if err := <-released; err != nil {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		b.granted(behind, true)
		if !w.done || !errors.Is(w.err, driver.ErrLost) {
			t.Errorf("the waiter got %v, %v, want ErrLost", w.done, w.err)
		}
	})
}

// reportLosses makes it unknown of all tickets whether they are there, as a report of the watch
// does until the tickets were looked for.
func (b *bed) reportLosses() {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	for s := range b.e.sessions {
		s.reported = b.e.tick()
	}
}

// The store does not answer when a grant is to be confirmed: the waiter is granted when it
// does, or gets the error when its context ends.
func TestConfirmIsRepeated(t *testing.T) {
	for what, gives := range map[string]bool{"granted": true, "given up": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.store.unwatched, b.e.opts.LocalWait = true, time.Hour
				h := b.get(b.e, request("a", "0"))
				w := b.wait(b.e, request("a", "w"))
				b.reportLosses()
				b.store.with(func(what, _ string, _ bool) error {
					if what == "missing" {
						return errFakeLost
					}
					return nil
				})
				b.drop(b.e, h)
				time.Sleep(time.Second)
				b.granted(w, false)
				if gives {
					b.store.with(nil)
					time.Sleep(time.Second)
					b.granted(w, true)
				} else if w.cancel(); true {
					synctest.Wait()
					if !w.done || !errors.Is(w.err, context.Canceled) {
						t.Errorf("the waiter got %v, %v", w.done, w.err)
					}
				}
				b.drop(b.e, w.r.Hold(0))
			})
		})
	}
}

// The store's client sends several puts twice, one after the other: the ticket is put until one is sent once.
func TestOccupiedAgainAndAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		left := 5
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && done && left > 0 {
				left--
				return ErrOccupied
			}
			return nil
		})
		b.drop(b.e, b.get(b.e, request("a", "1")))
		if n := b.store.queued("a"); n > 0 || left > 0 {
			t.Errorf("%d tickets are left, and %d puts were not sent", n, left)
		}
	})
}

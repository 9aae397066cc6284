package kvqueue

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Tickets of one process are handed over without news from the store, and without
// reading the queue.
func TestHandOverWithin(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.deaf = true
		h := b.get(b.e, request("a", "0"))
		var ws []*waiter
		for i := 1; i < 100; i++ {
			ws = append(ws, b.wait(b.e, request("a", fmt.Sprint(i))))
		}
		before := b.store.count("read")
		for _, w := range ws {
			b.granted(w, false)
			b.drop(b.e, h)
			b.granted(w, true)
			h = w.r.Hold(w.grant.Token)
		}
		b.drop(b.e, h)
		if n := b.store.count("read") - before; n > 1 { // one for the tickets whose puts did not read the queue, since it was long
			t.Errorf("99 grants took %d readings of the queue", n)
		}
	})
}

// A waiter behind tickets of another process is granted when all of them have gone, in
// whatever order.
func TestHandOverBetween(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "0"))
		first, second := b.wait(other, request("a", "1")), b.wait(other, request("a", "2"))
		w := b.wait(b.e, request("a", "w"))
		second.cancel()
		b.drop(other, second.r.Hold(0))
		b.granted(w, false)
		b.drop(other, h)
		b.granted(first, true)
		b.granted(w, false)
		b.drop(other, first.r.Hold(first.grant.Token))
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(w.grant.Token))
	})
}

// If the put of a ticket has not read the queue, a reading comes before the grant.
func TestBlindPut(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "0"))
		b.store.blind = true
		w := b.wait(b.e, request("a", "1"))
		b.granted(w, false)
		b.drop(other, h)
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(0))
	})
}

// A waiter with a wide limit is granted even if one with a narrow limit waits ahead of
// it in the same process, and even if it comes later.
func TestWiderLimitBehind(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h1, h2 := b.get(other, shared(request("a", "1"), 0)), b.get(other, shared(request("a", "2"), 0))
		narrow := b.wait(b.e, shared(request("a", "n"), 1))
		wide := b.wait(b.e, shared(request("a", "w"), 3))
		b.drop(other, h1) // now one and the narrow one are ahead of the wide one
		b.granted(wide, true)
		b.granted(narrow, false)
		b.drop(other, h2)
		b.granted(narrow, true)
		b.drop(b.e, wide.r.Hold(wide.grant.Token))
		b.drop(b.e, narrow.r.Hold(narrow.grant.Token))
	})
}

// When the watched ticket has gone, others ahead may have gone before it. One reading
// finds out, not a watch of each of them.
func TestAimedAtHasGone(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		var ahead []driver.Hold
		for i := range 50 {
			ahead = append(ahead, b.get(other, shared(request("a", fmt.Sprint(i)), 0)))
		}
		w := b.wait(b.e, request("a", "w"))
		for _, h := range ahead { // the last of them is watched
			b.granted(w, false)
			b.drop(other, h)
		}
		b.granted(w, true)
		if watches, reads := b.store.count("watch"), b.store.count("read"); watches > 1 || reads > 1 {
			t.Errorf("%d watches and %d readings of the queue, want one of each", watches, reads)
		}
		b.drop(b.e, w.r.Hold(0))
	})
}

// After a watch that ends without news, or fails, the queue is read: another watch may
// not mend the failure, for example of an authentication.
func TestWatchEnds(t *testing.T) {
	for _, fails := range []bool{false, true} {
		inBubble(t, func(b *bed) {
			other := b.another()
			h := b.get(other, request("a", "0"))
			b.store.silent = !fails
			b.store.with(func(what, _ string, _ bool) error {
				if what == "watch" && fails && b.store.count("read") == 0 {
					return errFakeLost
				}
				return nil
			})
			w := b.wait(b.e, request("a", "1"))
			b.drop(other, h)
			time.Sleep(retryFirst)
			b.granted(w, true)
			if n := b.store.count("read"); n != 1 {
				t.Errorf("the queue was read %d times, want once", n)
			}
			b.drop(b.e, w.r.Hold(0))
		})
	}
}

// A queue is read, and its watch made anew, after a time without news, but not while there
// are news.
func TestRecheck(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "0"))
		first, narrow := shared(request("a", "1"), 2), shared(request("a", "2"), 2)
		w := b.wait(b.e, first)
		w2 := b.wait(b.e, narrow)
		b.drop(other, h)
		b.granted(w, true)
		b.granted(w2, true)
		w = b.wait(b.e, shared(request("a", "3"), 2)) // behind two permits, so the whole queue is watched
		watches, reads := b.store.count("watch"), b.store.count("read")
		for range 100 {
			time.Sleep(400 * time.Millisecond)
			b.drop(other, b.get(other, request("b", "n"))) // which the fake reports
			synctest.Wait()
		}
		if w, r := b.store.count("watch")-watches, b.store.count("read")-reads; w > 1 || r > 0 {
			t.Errorf("%d watches and %d readings of a queue of which there were news, want 1 and none", w, r)
		}
		time.Sleep(3 * time.Minute)
		if r := b.store.count("read") - reads; r < 6 || r > 10 { // after 1, 2, 4 … 60 seconds
			t.Errorf("%d readings of the queue in 3 minutes without news", r)
		}
		b.granted(w, false)
		for _, id := range []string{"1", "2", "3"} {
			b.drop(b.e, driver.Hold{Name: "a", ID: id})
		}
	})
}

// If the store is restored to before a ticket was put, and nothing else is known of the
// queue yet, that ticket is lost, and no other.
func TestRestoredBeforeRead(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.unwatched = true // a loss watch would find out, too
		b.get(b.another(), request("a", "0"))
		b.store.blind = true
		unread := func(what, _ string, _ bool) error {
			if what == "read" {
				return errFakeBusy
			}
			return nil
		}
		b.store.with(unread)
		first, second := b.wait(b.e, request("a", "1")), b.wait(b.e, request("a", "2"))
		b.store.restore("a", 2)
		b.store.with(nil)
		time.Sleep(retryMost)
		synctest.Wait()
		if !second.done || !errors.Is(second.err, driver.ErrLost) {
			t.Errorf("the second waiter got %v, want ErrLost", second.err)
		}
		b.granted(first, false)
		second.cancel()
	})
}

// A store that gives an old number again was restored, too.
func TestRestoredBeforePut(t *testing.T) {
	for what, more := range map[string]bool{"an older number": true, "the same number": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				other := b.another()
				b.get(other, request("a", "0"))
				if more {
					b.drop(other, b.get(other, request("b", "x")))
				}
				w := b.wait(b.e, request("a", "1"))
				b.store.restore("a", 1)
				again := b.wait(b.e, request("a", "2"))
				if !w.done || !errors.Is(w.err, driver.ErrLost) {
					t.Errorf("the waiter got %v, want ErrLost", w.err)
				}
				b.granted(again, false)
			})
		})
	}
}

// After an outage the queue is read at once, because its watch may hang on a dead
// connection.
func TestRecheckAfterOutage(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.e.opts.Recheck = time.Hour
		other := b.another()
		h := b.get(other, request("a", "0"))
		b.store.deaf = true
		w := b.wait(b.e, request("a", "1"))
		b.store.with(func(what, _ string, _ bool) error {
			if what == "keep" {
				return errFakeLost
			}
			return nil
		})
		time.Sleep(30 * time.Second / keepPart)
		synctest.Wait()
		b.drop(other, h)
		b.granted(w, false)
		b.store.with(nil)
		time.Sleep(2 * time.Second) // until the keep-alive is tried again
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(0))
	})
}

// A waiter whose entry is removed by hand, and whose queue is read, before its put is answered
// is lost with the answer, also if that does not show the queue.
func TestRemovedInPut(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.blind, b.store.unwatched = true, true
		b.e.opts.NearHead = 16
		other := b.another()
		h := b.get(other, request("a", "1"))
		first := b.wait(b.e, request("a", "2"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && done {
				b.store.strike("a", "3")
				time.Sleep(10 * time.Millisecond) // the watch reports that
			}
			return nil
		})
		var err error
		go func() { _, err = b.e.Acquire(b.Context(), request("a", "3")) }()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("the waiter got %v", err)
		}
		b.drop(other, h)
		b.granted(first, true)
	})
}

// A permit that another process returns is granted at once, even if the nearest ticket ahead is one of this driver, whose release
// it would know of without a watch.
func TestPermitOfAnotherProcess(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.e.opts.LocalWait = time.Second
		other := b.another()
		far := b.get(other, shared(request("a", "far"), 2))
		near := b.get(b.e, shared(request("a", "near"), 2))
		w := b.wait(b.e, shared(request("a", "w"), 2))
		b.drop(other, far)
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(w.grant.Token))
		b.drop(b.e, near)
	})
}

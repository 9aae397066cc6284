package kvqueue

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// strike removes tickets, at once and without a request.
func (s *fake) strike(name string, ids ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.remove(name, func(t Ticket) bool { return slices.Contains(ids, t.ID) })
	close(s.changed)
	s.changed = make(chan struct{})
}

// restore takes the store back to when the last ticket of a queue had the given number.
func (s *fake) restore(name string, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number = number
	s.queues[name] = slices.DeleteFunc(slices.Clone(s.queues[name]), func(t Ticket) bool { return t.Number > number })
}

// When a session has ended, its waiters are lost and its holders notified. The next
// ticket gets another session.
func TestSessionOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.unwatched, b.e.opts.Recheck = true, time.Hour // they would find out, too
		b.get(b.another(), request("a", "0"))
		h := b.get(b.e, request("b", "1"))
		w := b.wait(b.e, request("a", "2"))
		if err := b.store.End(b.Context(), "s2"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second / keepPart)
		synctest.Wait()
		if !w.done || !errors.Is(w.err, driver.ErrLost) || !errors.Is(w.err, ErrSessionOver) {
			t.Errorf("the waiter got %v, want ErrLost because the session is over", w.err)
		}
		if !errors.Is(b.lost["1"], driver.ErrLost) {
			t.Errorf("the holder got %v", b.lost["1"])
		}
		if err := b.e.Renew(b.Context(), h, 30*time.Second); !errors.Is(err, driver.ErrLost) {
			t.Errorf("renewal: %v, want ErrLost", err)
		}
		b.drop(b.e, b.get(b.e, request("b", "3")))
	})
}

// The session of a waiter is kept alive until the waiter gives up. A session that
// nobody uses is ended.
func TestKeepAlives(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "1"))
		w := b.wait(b.e, request("a", "2"))
		time.Sleep(5*time.Minute + time.Second)
		if n := b.store.count("keep"); n != 30 {
			t.Errorf("%d keep-alives in 5 minutes of a session of 30s, want 30", n)
		}
		w.cancel()
		synctest.Wait()
		before := b.store.count("keep")
		time.Sleep(time.Minute)
		if n := b.store.count("keep") - before; n > 0 {
			t.Errorf("%d keep-alives after the waiter has given up", n)
		}
		b.drop(b.e, w.r.Hold(0))
		time.Sleep(idleFor + time.Second)
		if n := b.store.count("end"); n != 1 {
			t.Errorf("%d sessions were ended that were idle, want 1", n)
		}
		b.drop(other, h)
	})
}

// A waiter that has given up and asks again waits with the same ticket. It is granted
// even though nobody has watched the queue meanwhile.
func TestWaitAgain(t *testing.T) {
	for _, late := range []bool{false, true} {
		inBubble(t, func(b *bed) {
			other := b.another()
			h := b.get(other, request("a", "1"))
			w := b.wait(b.e, request("a", "2"))
			w.cancel()
			synctest.Wait()
			if late {
				b.drop(other, h)
				synctest.Wait()
			}
			again := b.wait(b.e, w.r)
			if n := b.store.queued("a"); n != 2 && !late || n != 1 && late {
				t.Errorf("%d tickets are queued", n)
			}
			if !late {
				b.drop(other, h)
			}
			b.granted(again, true)
			b.drop(b.e, again.r.Hold(0))
		})
	}
}

// When entries are removed by hand, their holders are notified, and their waiters are lost.
func TestDeletedByHand(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.get(b.another(), request("a", "0"))
		b.get(b.e, request("b", "1"))
		w := b.wait(b.e, request("a", "2"))
		time.Sleep(2 * lossDelay)
		b.store.strike("a", "2")
		b.store.strike("b", "1")
		synctest.Wait()
		if !w.done || !errors.Is(w.err, errDeleted) {
			t.Errorf("the waiter got %v", w.err)
		}
		if !errors.Is(b.lost["1"], errDeleted) {
			t.Errorf("the holder got %v", b.lost["1"])
		}
	})
}

// A holder and the waiter behind it are removed at once: the waiter is lost. It is not
// granted for a moment, and its caller is not notified of the loss of a lock.
func TestHolderAndWaiterDeleted(t *testing.T) {
	for range 10 { // the order in which the engine comes upon its tickets varies
		inBubble(t, func(b *bed) {
			b.store.deaf = true // the loss watch notices first
			b.get(b.e, request("a", "1"))
			w := b.wait(b.e, request("a", "2"))
			time.Sleep(2 * lossDelay)
			b.store.strike("a", "1", "2")
			synctest.Wait()
			b.lostAtOnce(w)
		})
	}
}

// lostAtOnce wants ticket 1 to be a lost lock, and the waiter lost without having been
// granted.
func (b *bed) lostAtOnce(w *waiter) {
	b.Helper()
	if !w.done || !errors.Is(w.err, errDeleted) {
		b.Errorf("the waiter got %v, %v", w.done, w.err)
	}
	if !errors.Is(b.lost["1"], errDeleted) || b.lost["2"] != nil {
		b.Errorf("lost locks: %v, want that of ticket 1 alone", b.lost)
	}
}

// Close leaves a ticket with a minimum hold, and nothing else.
func TestMinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFake()
		e := New(Options{Store: s})
		s.with(func(what, _ string, done bool) error {
			if what == "put" && done {
				time.Sleep(time.Second) // meanwhile the session's TTL runs
			}
			return nil
		})
		r := request("a", "1")
		r.MinHold = 20 * time.Second
		for _, r := range []driver.Request{r, request("b", "2")} {
			if _, err := e.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if s.count("keep") != 1 {
			t.Errorf("%d keep-alives, want one after the grant of the ticket with a minimum hold", s.count("keep"))
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if s.queued("a") != 1 || s.queued("b") != 0 {
			t.Errorf("%d and %d tickets are queued, want the one with the minimum hold", s.queued("a"), s.queued("b"))
		}
	})
}

// A ticket does not outlive Close if its minimum hold is over or has not begun.
func TestMinHoldEnds(t *testing.T) {
	r := request("a", "1")
	r.MinHold = 20 * time.Second
	t.Run("over", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.get(b.e, r)
			time.Sleep(r.MinHold)
		})
	})
	t.Run("waiting", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			b.get(b.another(), request("a", "0"))
			b.wait(b.e, r)
			if err := b.e.Close(); err != nil || b.store.queued("a") != 1 {
				t.Errorf("close: %v, and %d tickets are queued, want the one of the other process", err, b.store.queued("a"))
			}
		})
	})
}

// A fixed lease is over at its time, even if its session lives.
func TestFixedLeaseIsOver(t *testing.T) {
	inBubble(t, func(b *bed) {
		renewed := b.get(b.e, request("b", "r"))
		r := request("a", "1")
		r.Renewed = false
		h := b.get(b.e, r)
		time.Sleep(20 * time.Second)
		if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
			t.Errorf("renewal in time: %v", err)
		}
		time.Sleep(29 * time.Second)
		if err := b.e.Renew(b.Context(), renewed, 30*time.Second); err != nil {
			t.Error(err)
		}
		if q, err := b.e.Inspect(b.Context(), "a"); err != nil || q[0].Remaining > time.Second {
			t.Errorf("%v, %v: want what is left of the fixed lease", q, err)
		}
		time.Sleep(2 * time.Second)
		if err := b.e.Renew(b.Context(), h, 30*time.Second); !errors.Is(err, driver.ErrLost) {
			t.Errorf("renewal after its time: %v, want ErrLost", err)
		}
		b.drop(b.e, h)
		b.drop(b.e, renewed)
	})
}

// If a store has lost its past, for example by a restore, the waiters that it does not
// show are lost, and grants follow what it shows.
func TestRestored(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		b.get(other, request("a", "0"))
		h := b.get(b.e, request("b", "1"))
		w := b.wait(b.e, request("a", "2"))
		b.store.mu.Lock()
		b.store.number = 1 // of "0"
		b.store.queues["a"] = b.store.queues["a"][:1]
		delete(b.store.queues, "b")
		b.store.mu.Unlock()
		time.Sleep(2 * time.Second) // the queue is read again
		synctest.Wait()
		if !w.done || !errors.Is(w.err, driver.ErrLost) {
			t.Errorf("the waiter got %v, want ErrLost", w.err)
		}
		if err := b.e.Renew(b.Context(), h, 30*time.Second); !errors.Is(err, driver.ErrLost) {
			t.Errorf("renewal: %v, want ErrLost", err)
		}
		if err := other.Release(context.WithoutCancel(b.Context()), driver.Hold{Name: "a", ID: "0"}); err != nil {
			t.Error(err)
		}
		b.drop(b.e, b.get(b.e, request("a", "3")))
	})
}

// After a session has ended, the next ticket opens one session, not two.
func TestOneSessionAfterAnother(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.drop(b.e, b.get(b.e, request("a", "1")))
		if err := b.store.End(b.Context(), "s1"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Second/freshPart + time.Second)
		h := b.get(b.e, request("a", "2"))
		if b.store.opened != 2 {
			t.Errorf("%d sessions were opened, want 2", b.store.opened)
		}
		b.drop(b.e, h)
	})
}

// The keep-alive of one acquisition hangs, perhaps on a dead connection: others of the
// same TTL soon send another.
func TestHungKeepAlive(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.drop(b.e, b.get(b.e, request("a", "1")))
		time.Sleep(30*time.Second/freshPart + time.Second)
		hangs := make(chan struct{})
		b.store.with(func(what, _ string, done bool) error {
			if what == "keep" && !done {
				b.store.with(nil)
				<-hangs
			}
			return nil
		})
		first := make(chan driver.Hold)
		go func() { first <- b.get(b.e, request("first", "2")) }()
		synctest.Wait()
		begun := time.Now()
		for i := range 3 {
			b.drop(b.e, b.get(b.e, request("a", "3"+string(rune('0'+i)))))
		}
		if took := time.Since(begun); took > tryBound {
			t.Errorf("other acquisitions took %v, want %v at most", took, tryBound)
		}
		close(hangs)
		b.drop(b.e, <-first)
	})
}

// A request that makes sure of a grant, and that the network has lost, is sent again: the
// caller may wait without a limit.
func TestGrantIsEnsuredAgain(t *testing.T) {
	for _, what := range []string{"keep", "missing"} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.store.unwatched, b.e.opts.LocalWait = true, time.Hour
				h := b.get(b.e, request("a", "0"))
				r := request("a", "w")
				r.Renewed = false
				w := b.wait(b.e, r)
				b.reportLosses()
				var lost atomic.Bool
				b.store.with(func(request, _ string, done bool) error {
					if request == what && !done && !lost.Swap(true) {
						return errFakeHangs
					}
					return nil
				})
				time.Sleep(time.Second)
				b.drop(b.e, h)
				time.Sleep(2 * tryBound)
				if !lost.Load() {
					t.Fatal("nothing was lost")
				}
				b.granted(w, true)
				b.store.with(nil)
				b.drop(b.e, w.r.Hold(0))
			})
		})
	}
}

// The lease of a ticket is shortened before Close: the ticket stays for that long, on a
// session of its own kind, and the other sessions end. A lease that ends sooner is left as
// it is.
func TestShorten(t *testing.T) {
	inBubble(t, func(b *bed) {
		e := b.another()
		r := request("a", "1")
		r.MinHold = 20 * time.Second
		h := b.get(e, r)
		b.get(e, request("b", "2"))
		time.Sleep(12 * time.Second)
		for _, d := range []time.Duration{25 * time.Second, 8 * time.Second} {
			if err := e.Shorten(b.Context(), h, d); err != nil {
				t.Fatal(err)
			}
		}
		if n := b.store.count("move"); n != 1 {
			t.Errorf("%d moves, want one", n)
		}
		b.counts(e)
		begun := time.Now()
		b.others = nil
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if n := b.store.queued("b"); n > 0 {
			t.Error("a ticket without a minimum hold is left")
		}
		ticket := b.store.queues["a"]
		if len(ticket) != 1 || ticket[0].Number != h.Token || len(b.store.sessions) != 1 {
			t.Fatalf("left are tickets %v and sessions %v, want the held ticket and its session", ticket, b.store.sessions)
		}
		s := ticket[0].Session
		if end := b.store.kept[s].Add(b.store.ttls[s]); end.Before(begun.Add(8*time.Second)) || end.After(begun.Add(9*time.Second)) {
			t.Errorf("its session ends %v after the call, want 8s", end.Sub(begun))
		}
		_ = b.store.End(b.Context(), s)
	})
}

// The minimum hold may end a little later for the caller than for the engine, which has
// granted the ticket before the caller had the answer. Close leaves it for what the caller says.
func TestShortenOutlastsClose(t *testing.T) {
	inBubble(t, func(b *bed) {
		e := b.another()
		r := request("a", "1")
		r.MinHold = 20 * time.Second
		h := b.get(e, r)
		time.Sleep(19 * time.Second)
		if err := e.Shorten(b.Context(), h, 2*time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(1500 * time.Millisecond)
		b.others = nil
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued half a second before the end of the minimum hold", n)
		}
		clear(b.store.sessions)
	})
}

// unansweredMove runs f twice with an engine whose lease is to be shortened to eight seconds,
// which the store has not answered: it has moved the ticket to the shorter session, or not.
func unansweredMove(t *testing.T, f func(b *bed, e *Engine, h driver.Hold)) {
	for what, done := range map[string]bool{"answer lost": true, "request lost": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				e := b.another()
				b.others = nil // f closes it
				r := request("a", "1")
				r.MinHold = 20 * time.Second
				h := b.get(e, r)
				b.store.with(func(what, _ string, after bool) error {
					if what == "move" && after == done {
						return errFakeLost
					}
					return nil
				})
				if err := e.Shorten(b.Context(), h, 8*time.Second); !errors.Is(err, errFakeLost) {
					t.Errorf("shorten: %v", err)
				}
				f(b, e, h)
			})
		})
	}
}

// The ticket may be on either session: Close ends neither.
func TestShortenUnanswered(t *testing.T) {
	unansweredMove(t, func(b *bed, e *Engine, _ driver.Hold) {
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		if n := b.store.queued("a"); n != 1 {
			b.Errorf("%d tickets are queued after Close, want that with the minimum hold", n)
		}
		clear(b.store.sessions)
	})
}

// The lease is shortened again, to what is left by then.
func TestShortenAgain(t *testing.T) {
	unansweredMove(t, func(b *bed, e *Engine, h driver.Hold) {
		b.store.with(nil)
		time.Sleep(time.Second)
		begun := time.Now()
		if err := e.Shorten(b.Context(), h, 7*time.Second); err != nil {
			b.Fatal(err)
		}
		if err := e.Close(); err != nil {
			b.Fatal(err)
		}
		if n := b.store.queued("a"); n != 1 {
			b.Fatalf("%d tickets are left", n)
		}
		for s := range b.store.sessions { // the request that was not answered may still be done
			if end := b.store.kept[s].Add(b.store.ttls[s]); s != "s1" && end.Sub(begun) != 7*time.Second {
				b.Errorf("session %s ends %v after the call, want 7s", s, end.Sub(begun))
			}
		}
		if end := b.store.lasts("a", "1"); end.Sub(begun) != 7*time.Second {
			b.Errorf("the ticket ends %v after the call, want 7s", end.Sub(begun))
		}
		clear(b.store.sessions)
	})
}

// A ticket that waits, or is not there, has no lease.
func TestShortenLost(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.another(), request("a", "0"))
		w := b.wait(b.e, request("a", "w"))
		for _, h := range []driver.Hold{w.r.Hold(0), request("b", "none").Hold(1), h} {
			if err := b.e.Shorten(b.Context(), h, time.Second); !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s: %v, want ErrLost", h.ID, err)
			}
		}
	})
}

// A second Close returns when the first has ended: the driver closes the client then.
func TestSecondClose(t *testing.T) {
	store := newFake()
	e := New(Options{Store: store})
	if _, err := e.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute, Renewed: true}); err != nil {
		t.Fatal(err)
	}
	ending, end := make(chan struct{}), make(chan struct{})
	store.with(func(what, _ string, done bool) error {
		if what == "end" && !done {
			close(ending)
			<-end
		}
		return nil
	})
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- e.Close() }()
	<-ending
	go func() { second <- e.Close() }()
	select {
	case err := <-second:
		t.Errorf("it returned while the first ends a session, with the error %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(end)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

package kvqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// lasts returns until when the store keeps a ticket if nobody renews it again.
func (s *fake) lasts(name, id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.queues[name] {
		if t.ID == id {
			return s.kept[t.Session].Add(s.ttls[t.Session])
		}
	}
	return time.Time{}
}

// A ticket that two renewals move at once is counted once on its new session, which
// lives as long as the ticket.
func TestMovedTwice(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "move" && !done {
				return errFakeLost
			}
			return nil
		})
		if err := b.e.Renew(b.Context(), h, time.Minute); !errors.Is(err, errFakeLost) {
			t.Errorf("renewal: %v", err)
		}
		var asked atomic.Int64
		b.store.with(func(what, session string, done bool) error {
			if what == "keep" && session == "s2" && done {
				time.Sleep(time.Duration(asked.Add(1)) * time.Second) // the first has moved the ticket before the second goes on
			}
			return nil
		})
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if err := b.e.Renew(b.Context(), h, time.Minute); err != nil {
					t.Errorf("renewal: %v", err)
				}
			})
		}
		both.Wait()
		time.Sleep(2 * idleFor)
		synctest.Wait()
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued, and the holder got %v", n, b.lost["1"])
		}
		b.drop(b.e, h)
		time.Sleep(idleFor + time.Second)
		synctest.Wait()
		if n := len(b.store.sessions); n != 0 {
			t.Errorf("%d sessions are left without tickets", n)
		}
	})
}

// A renewal that is faster with a longer lease is not undone by one that has opened a session
// for a shorter lease meanwhile (D12).
func TestMovedToALongerSession(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		var opened atomic.Int64
		b.store.with(func(what, _ string, done bool) error {
			if what == "open" && done && opened.Add(1) == 1 {
				time.Sleep(time.Second)
			}
			return nil
		})
		asked := time.Now()
		var both sync.WaitGroup
		for i, ttl := range []time.Duration{time.Minute, 2 * time.Minute} {
			time.Sleep(time.Duration(i) * 100 * time.Millisecond)
			both.Go(func() {
				if err := b.e.Renew(b.Context(), h, ttl); err != nil {
					t.Errorf("renewal for %v: %v", ttl, err)
				}
			})
		}
		both.Wait()
		if left := b.store.lasts("a", "1").Sub(asked); left < 2*time.Minute {
			t.Errorf("the store keeps the ticket for %v", left)
		}
		b.drop(b.e, h)
		time.Sleep(idleFor + time.Second)
		synctest.Wait()
		if n := len(b.store.sessions); n != 0 {
			t.Errorf("%d sessions are left without tickets", n)
		}
	})
}

// unansweredMove has moves fail without an answer, done or not, and a renewal ask for one.
func (b *bed) unansweredMove(h driver.Hold, done bool) {
	b.Helper()
	b.store.with(func(what, _ string, after bool) error {
		if what == "move" && after == done {
			return errFakeLost
		}
		return nil
	})
	if err := b.e.Renew(b.Context(), h, time.Minute); !errors.Is(err, errFakeLost) {
		b.Errorf("renewal: %v", err)
	}
}

// After a renewal without an error the store keeps the ticket for the renewal's TTL, even
// if an earlier renewal began to move the ticket to a session that is too short now.
func TestMovedFurther(t *testing.T) {
	for what, lost := range map[string]bool{"answer lost": true, "request lost": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				h := b.get(b.e, request("a", "1"))
				b.unansweredMove(h, lost)
				b.store.with(nil)
				asked := time.Now()
				if err := b.e.Renew(b.Context(), h, 2*time.Minute); err != nil {
					t.Errorf("renewal: %v", err)
				}
				if left := b.store.lasts("a", "1").Sub(asked); left < 2*time.Minute {
					t.Errorf("the store keeps the ticket for %v", left)
				}
				b.drop(b.e, h)
			})
		})
	}
}

// A refused move does not undo an earlier move that was not answered: the ticket may
// be in either session, and both are kept.
func TestRefusedMove(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		for _, refused := range []bool{true, false, true} {
			b.store.with(func(what, _ string, done bool) error {
				switch {
				case what == "move" && refused && !done:
					return Refused(errFakeBusy)
				case what == "move" && done:
					return errFakeLost
				}
				return nil
			})
			if err := b.e.Renew(b.Context(), h, time.Minute); err == nil {
				t.Error("renewed")
			}
			if refused && time.Until(b.store.lasts("a", "1")) < 31*time.Second { // it was never moved
				if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
					t.Errorf("renewal after a refused move: %v", err)
				}
			}
		}
		b.store.with(nil)
		time.Sleep(2 * idleFor)
		synctest.Wait()
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued, and the holder got %v", n, b.lost["1"])
		}
		if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
			t.Errorf("renewal: %v", err)
		}
		b.drop(b.e, h)
	})
}

// A ticket that is moved during its renewal is kept for the TTL of the renewal.
func TestMovedInRenewal(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		begun := time.Now()
		b.store.with(func(what, _ string, done bool) error {
			switch {
			case what == "move" && done:
				time.Sleep(4 * time.Second)
			case what == "missing" && done && time.Since(begun) >= 2*time.Second:
				time.Sleep(3 * time.Second) // the move is answered meanwhile
			}
			return nil
		})
		moved := make(chan error, 1)
		go func() { moved <- b.e.Renew(b.Context(), h, 31*time.Second) }()
		time.Sleep(2 * time.Second)
		asked := time.Now()
		if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
			t.Errorf("renewal: %v", err)
		}
		if left := b.store.lasts("a", "1").Sub(asked); left < 30*time.Second {
			t.Errorf("the store keeps the ticket for %v", left)
		}
		if err := <-moved; err != nil {
			t.Errorf("extension: %v", err)
		}
		b.drop(b.e, h)
	})
}

// A store that takes no writes, as an etcd that is full, does no move. A ticket whose own
// session is long enough is renewed all the same, and found to be lost when it is.
func TestRenewedWithoutItsMove(t *testing.T) {
	for what, lost := range map[string]bool{"answer lost": true, "request lost": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				h := b.get(b.e, request("a", "1"))
				b.unansweredMove(h, lost)
				for range 10 {
					time.Sleep(10 * time.Second)
					if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
						t.Errorf("renewal: %v", err)
						break
					}
				}
				b.store.vanish("a")
				if err := b.e.Renew(b.Context(), h, 30*time.Second); !errors.Is(err, driver.ErrLost) {
					t.Errorf("renewal of a ticket that is not there: %v, want ErrLost", err)
				}
			})
		})
	}
}

// A ticket may have been moved to a session that has ended since: the next renewal looks for
// it, however many others there are that are to be looked for first.
func TestNewSessionEndsInMove(t *testing.T) {
	inBubble(t, func(b *bed) {
		rs := b.many(3, 1)
		time.Sleep(2 * lossDelay)
		b.store.mu.Lock()
		b.store.unwatched = true // only breaks are reported
		b.store.mu.Unlock()
		b.store.with(func(what, _ string, done bool) error {
			if what == "move" && done {
				return errFakeLost
			}
			return nil
		})
		if err := b.e.Renew(b.Context(), rs[2].Hold, time.Minute); !errors.Is(err, errFakeLost) {
			t.Errorf("renewal: %v", err)
		}
		b.store.vanish(rs[2].Hold.Name)
		b.store.mu.Lock()
		delete(b.store.sessions, "s2")
		b.store.mu.Unlock()
		b.over("s2")
		if lost := b.renew(rs); !slices.Equal(lost, []string{"2"}) {
			t.Errorf("the renewal finds %v", lost)
		}
	})
}

// A renewal that has repeated a move in vain does not take a ticket for lost that others have
// moved further meanwhile.
func TestMovedFurtherWithoutOne(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		moves := 0
		b.store.with(func(what, session string, done bool) error {
			switch {
			case what == "move" && !done:
				if moves++; moves <= 2 { // of the first extension, and of the renewal
					return errFakeLost
				}
			case what == "missing" && session == "s1" && !done:
				time.Sleep(time.Second) // the ticket is moved twice
			}
			return nil
		})
		if err := b.e.Renew(b.Context(), h, time.Minute); !errors.Is(err, errFakeLost) {
			t.Errorf("extension: %v", err)
		}
		renewed := make(chan error, 1)
		go func() { renewed <- b.e.Renew(b.Context(), h, 30*time.Second) }()
		synctest.Wait()
		if err := b.e.Renew(b.Context(), h, 2*time.Minute); err != nil {
			t.Errorf("longer extension: %v", err)
		}
		if err := <-renewed; errors.Is(err, driver.ErrLost) {
			t.Errorf("renewal: %v", err)
		}
		if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
			t.Errorf("next renewal: %v", err)
		}
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued", n)
		}
		b.drop(b.e, h)
	})
}

// Renewals of one ticket for several lengths at once, on a store that is slow and loses requests
// and answers: whatever they promise the store keeps (D12), and no session is left.
func TestManyMoves(t *testing.T) {
	for seed := range uint64(300) {
		inBubble(t, func(b *bed) {
			rnd := rand.New(rand.NewPCG(seed, 0))
			h := b.get(b.e, request("a", "1"))
			var mu sync.Mutex // guards rnd
			chance := func(n int) int { mu.Lock(); defer mu.Unlock(); return rnd.IntN(n) }
			b.store.with(func(what, _ string, _ bool) error {
				if what != "end" && chance(3) == 0 {
					time.Sleep(time.Duration(chance(8)) * time.Second)
				}
				if what == "move" && chance(3) == 0 {
					return errFakeLost
				}
				return nil
			})
			lengths := []int{30, 31, 36, 60, 120} // seconds
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for range 4 {
						time.Sleep(time.Duration(chance(5)) * time.Second)
						asked, ttl := time.Now(), time.Duration(lengths[chance(len(lengths))])*time.Second
						err := b.e.Renew(b.Context(), h, ttl)
						if left := b.store.lasts("a", "1").Sub(asked); err == nil && left < ttl || errors.Is(err, driver.ErrLost) {
							t.Errorf("seed %d: a renewal for %v: %v; the store keeps the ticket for %v", seed, ttl, err, left)
						}
					}
				})
			}
			all.Wait()
			b.store.with(nil)
			b.drop(b.e, h)
			time.Sleep(2 * idleFor)
			synctest.Wait()
			if n := len(b.store.sessions); n != 0 {
				t.Errorf("seed %d: %d sessions are left without tickets", seed, n)
			}
		})
	}
}

// A ticket may have been moved from a session that has ended. If it was not, the loss is reported
// at once, though the new session has been watched for long.
func TestOldSessionEndsInMove(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "move" && !done {
				return errFakeLost
			}
			return nil
		})
		if err := b.e.Renew(b.Context(), h, time.Minute); !errors.Is(err, errFakeLost) {
			t.Errorf("extension: %v", err)
		}
		b.store.with(nil)
		time.Sleep(2 * lossDelay)
		b.store.vanish("a")
		b.store.mu.Lock()
		delete(b.store.sessions, "s1")
		b.store.mu.Unlock()
		b.over("s1")
		time.Sleep(2 * lossDelay)
		synctest.Wait()
		if !errors.Is(b.lost["1"], driver.ErrLost) {
			t.Errorf("the holder was told %v", b.lost["1"])
		}
	})
}

// A ticket is not moved to a session that ends before what another renewal has promised
// meanwhile, though it is longer (D12).
func TestMovedToASessionThatEndsEarlier(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		longer := request("b", "2")
		longer.TTL = 31 * time.Second
		b.get(b.e, longer) // opens the session
		var keeps atomic.Int64
		b.store.with(func(what, session string, done bool) error {
			if what == "keep" && session == "s1" && done {
				if keeps.Add(1) == 1 {
					time.Sleep(10 * time.Second)
				}
			}
			return nil
		})
		extended := make(chan error, 1)
		go func() { extended <- b.e.Renew(b.Context(), h, 31*time.Second) }()
		time.Sleep(5 * time.Second)
		asked := time.Now()
		if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
			t.Errorf("renewal: %v", err)
		}
		if err := <-extended; err != nil {
			t.Errorf("extension: %v", err)
		}
		if left := b.store.lasts("a", "1").Sub(asked); left < 30*time.Second {
			t.Errorf("the store keeps the ticket for %v", left)
		}
		b.drop(b.e, h)
	})
}

// An extension moves the last ticket off a session that takes no more, which is ended then. A
// renewal that was about to keep that session alive takes the ticket for lost no more than the
// extension does.
func TestSessionEndsAfterMove(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && done {
				return errFakeLost
			}
			return nil
		})
		r := request("b", "2") // its session takes no more tickets
		if _, err := b.e.Acquire(b.Context(), r); !errors.Is(err, errFakeLost) {
			t.Fatal(err)
		}
		b.drop(b.e, r.Hold(0))
		b.store.with(func(what, session string, done bool) error {
			if what == "keep" && session == "s1" && !done {
				b.store.with(nil)
				time.Sleep(time.Second)
			}
			return nil
		})
		renewed := make(chan error, 1)
		go func() { renewed <- b.e.Renew(b.Context(), h, 30*time.Second) }()
		synctest.Wait()
		if err := b.e.Renew(b.Context(), h, time.Minute); err != nil {
			t.Errorf("extension: %v", err)
		}
		if err := <-renewed; err != nil {
			t.Errorf("renewal: %v", err)
		}
		b.drop(b.e, h)
	})
}

// The session to which a ticket was moved ends before the answer: the ticket is lost with it.
func TestNewSessionEndsBeforeTheAnswer(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "move" && done {
				_ = b.store.End(t.Context(), "s2")
				b.over("s2")
			}
			return nil
		})
		if err := b.e.Renew(b.Context(), h, time.Minute); !errors.Is(err, driver.ErrLost) {
			t.Errorf("extension: %v, want ErrLost", err)
		}
	})
}

// A store whose disk hangs may still keep sessions alive, and read. A ticket whose own session is
// long enough is renewed in time, though its move hangs.
func TestRenewedWhileItsMoveHangs(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "move" && !done {
				return errFakeHangs
			}
			return nil
		})
		renew := func(ttl time.Duration) error {
			ctx, cancel := context.WithTimeout(b.Context(), 6*time.Second)
			defer cancel()
			return b.e.Renew(ctx, h, ttl)
		}
		if err := renew(time.Minute); err == nil {
			t.Error("an extension that was not done has an answer")
		}
		for range 10 {
			if err := renew(30 * time.Second); err != nil {
				t.Errorf("renewal: %v", err)
			}
			time.Sleep(10 * time.Second)
		}
		b.store.with(nil)
		b.drop(b.e, h)
	})
}

// One of the two sessions of a ticket ends just before its move is repeated. The ticket is counted
// on the other one, which is not ended, and its next losses are noticed.
func TestSessionEndsBeforeRepeatedMove(t *testing.T) {
	for session, moved := range map[string]bool{"s1": true, "s2": false} {
		t.Run(session, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				h := b.get(b.e, request("a", "1"))
				b.unansweredMove(h, moved)
				b.store.with(func(what, kept string, done bool) error {
					if what == "keep" && kept == "s2" && done {
						b.store.with(nil)
						_ = b.store.End(t.Context(), session)
						b.over(session)
					}
					return nil
				})
				for range 5 {
					if err := b.e.Renew(b.Context(), h, 30*time.Second); err != nil {
						t.Errorf("renewal: %v", err)
					}
					time.Sleep(10 * time.Second)
				}
				if n := b.store.queued("a"); n != 1 {
					t.Errorf("%d tickets are queued", n)
				}
				b.store.strike("a", "1")
				synctest.Wait()
				if !errors.Is(b.lost["1"], driver.ErrLost) {
					t.Error("the holder was not notified")
				}
			})
		})
	}
}

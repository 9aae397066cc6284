package kvqueue

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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

// After a renewal without an error the store keeps the ticket for the renewal's TTL, even
// if an earlier renewal began to move the ticket to a session that is too short now.
func TestMovedFurther(t *testing.T) {
	for what, lost := range map[string]bool{"answer lost": true, "request lost": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				h := b.get(b.e, request("a", "1"))
				b.store.with(func(what, _ string, done bool) error {
					if what == "move" && done == lost {
						return errFakeLost
					}
					return nil
				})
				if err := b.e.Renew(b.Context(), h, time.Minute); !errors.Is(err, errFakeLost) {
					t.Errorf("renewal: %v", err)
				}
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
				time.Sleep(20 * time.Second)
			case what == "missing" && done && time.Since(begun) >= 15*time.Second:
				time.Sleep(10 * time.Second) // the move is answered meanwhile
			}
			return nil
		})
		moved := make(chan error, 1)
		go func() { moved <- b.e.Renew(b.Context(), h, 31*time.Second) }()
		time.Sleep(15 * time.Second)
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

package kvqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// asking is a store that notes how many tickets each call of Missing asks for.
type asking struct {
	*fake
	mu    sync.Mutex
	asked []int
}

func (s *asking) Missing(ctx context.Context, ts []Ticket) ([]int, error) {
	s.mu.Lock()
	s.asked = append(s.asked, len(ts))
	s.mu.Unlock()
	return s.fake.Missing(ctx, ts)
}

// take returns what was noted since the last call.
func (s *asking) take() (asked []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	asked, s.asked = s.asked, nil
	return asked
}

// vanish removes a ticket without news for any watch.
func (s *fake) vanish(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.queues, name)
}

// many acquires n names, whose renewals look for most of them.
func (b *bed) many(n, most int) (rs []driver.Renewal) {
	b.e.opts.LookFor = most
	for i := range n {
		h := b.get(b.e, request(fmt.Sprint("name-", i), fmt.Sprint(i)))
		rs = append(rs, driver.Renewal{Hold: h, TTL: 30 * time.Second})
	}
	return rs
}

// renew renews at a later time, and returns the IDs of the tickets that are lost.
func (b *bed) renew(rs []driver.Renewal) (lost []string) {
	b.Helper()
	time.Sleep(time.Second)
	for i, err := range b.e.RenewAll(b.Context(), rs) {
		switch {
		case errors.Is(err, driver.ErrLost):
			lost = append(lost, rs[i].Hold.ID)
		case err != nil:
			b.Errorf("renewal of %s: %v", rs[i].Hold.ID, err)
		}
	}
	return lost
}

// A renewal of many tickets looks for some of them, and later ones for the others: each
// ticket that was removed by hand is found, also if the tickets are renewed in two batches by
// turns. While nothing watches for losses, a renewal looks for all.
func TestLookFor(t *testing.T) {
	const n, most = 12, 3
	for _, batches := range []int{1, 2, 3} {
		for gone := range n {
			t.Run(fmt.Sprint(batches, "/", gone), func(t *testing.T) {
				inBubble(t, func(b *bed) {
					store := &asking{fake: b.store}
					b.e.store = store
					rs := b.many(n, most)
					b.e.RenewAll(b.Context(), rs)
					if asked := store.take(); !slices.Equal(asked, []int{n}) {
						t.Errorf("not watched: asked for %v", asked)
					}
					time.Sleep(2 * lossDelay)
					b.store.vanish(rs[gone].Hold.Name)
					var lost []string
					for range (n/batches + most - 1) / most {
						for batch := range slices.Chunk(rs, n/batches) {
							store.take()
							lost = append(lost, b.renew(batch)...)
							if asked := store.take(); len(asked) != 1 || asked[0] > most {
								t.Errorf("asked for %v, want %d", asked, most)
							}
						}
					}
					if !slices.Contains(lost, rs[gone].Hold.ID) {
						t.Errorf("lost %v", lost)
					}
				})
			})
		}
	}
}

// A ticket that is broken while its put is not answered is not granted, though the watch for
// losses has reported before the engine knew that the ticket is there.
func TestBrokenInPut(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.many(1, 1)
		time.Sleep(2 * lossDelay)
		b.store.with(func(what, name string, done bool) error {
			if what == "put" && name == "a" && done {
				time.Sleep(time.Second)
				b.store.strike("a", "new")
				time.Sleep(time.Second)
			}
			return nil
		})
		if g, err := b.e.Acquire(b.Context(), request("a", "new")); !errors.Is(err, driver.ErrLost) {
			t.Errorf("granted %v, %v", g, err)
		}
	})
}

// If the store does not answer when the watch for losses has reported, the next renewal looks
// for all tickets.
func TestCheckFails(t *testing.T) {
	inBubble(t, func(b *bed) {
		rs := b.many(10, 1)
		time.Sleep(2 * lossDelay)
		b.store.with(func(what, _ string, _ bool) error {
			if what == "missing" {
				return errFakeLost
			}
			return nil
		})
		b.store.strike("name-7", "7")
		synctest.Wait()
		b.store.with(nil)
		errs := b.e.RenewAll(b.Context(), rs) // before the watch's next request
		if b.lost["7"] != nil || !errors.Is(errs[7], driver.ErrLost) {
			t.Errorf("the renewal finds %v, the holder was notified of %v", errs[7], b.lost["7"])
		}
	})
}

// A renewal that looks for very many tickets sends its requests together.
func TestLookForAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.unwatched = true
		rs := b.many(50, 5)
		b.e.opts.MissingMost = 5
		b.store.with(func(what, _ string, done bool) error {
			if what == "missing" && !done {
				time.Sleep(time.Second)
			}
			return nil
		})
		begun := time.Now()
		b.e.RenewAll(b.Context(), rs)
		if n, took := b.store.count("missing"), time.Since(begun); n != 10 || took > time.Second {
			t.Errorf("%d requests in %v, want 10 in 1s", n, took)
		}
	})
}

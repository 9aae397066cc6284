package kvqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// asking is a store that notes how many tickets each call of Missing asks for.
type asking struct {
	*fake
	asked []int
}

func (s *asking) Missing(ctx context.Context, session string, ts []Ticket) ([]int, error) {
	s.asked = append(s.asked, len(ts))
	return s.fake.Missing(ctx, session, ts)
}

// A renewal of many tickets looks for some of them, and later ones for the others: each
// ticket that was removed by hand is found. While nothing watches for losses, a renewal
// looks for all.
func TestLookFor(t *testing.T) {
	inBubble(t, func(b *bed) {
		const n, most = 10, 3
		store := &asking{fake: b.store}
		b.e.store, b.e.opts.LookFor = store, most
		var rs []driver.Renewal
		for i := range n {
			h := b.get(b.e, request(fmt.Sprint("name-", i), fmt.Sprint(i)))
			rs = append(rs, driver.Renewal{Hold: h, TTL: 30 * time.Second})
		}
		renew := func() (lost []int) {
			store.asked = nil
			for i, err := range b.e.RenewAll(b.Context(), slices.Clone(rs)) {
				if errors.Is(err, driver.ErrLost) {
					lost = append(lost, i)
				}
			}
			return lost
		}
		if lost := renew(); lost != nil || !slices.Equal(store.asked, []int{n}) {
			t.Errorf("not watched: lost %v, asked for %v", lost, store.asked)
		}
		time.Sleep(2 * lossDelay)
		synctest.Wait()
		for gone := range n {
			b.store.mu.Lock() // without news for the watch
			delete(b.store.queues, rs[gone].Hold.Name)
			b.store.mu.Unlock()
			found := false
			for range (n + most - 1) / most {
				lost := renew()
				found = found || slices.Contains(lost, gone)
				if len(rs)-gone > most && !slices.Equal(store.asked, []int{most}) {
					t.Errorf("asked for %v, want %d", store.asked, most)
				}
			}
			if !found {
				t.Errorf("ticket %d was not found to be gone", gone)
			}
		}
	})
}

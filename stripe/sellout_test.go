package stripe_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
	"github.com/lockerproject/locker/stripe"
)

// sellOut has buyers of several processes empty a stock that is cut in segments. It
// fails the test if two work on a segment at a time, or if the stock is not sold
// exactly.
func sellOut(t *testing.T, stock []int, open func() locker.Locker) {
	t.Helper()
	const processes, buyers = 3, 4
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		busy  = make([]bool, len(stock))
		sold  int
		total int
	)
	for _, n := range stock {
		total += n
	}
	enter := func(i int, in bool) {
		mu.Lock()
		defer mu.Unlock()
		if busy[i] == in {
			t.Errorf("two at a time in segment %d", i)
		}
		busy[i] = in
	}
	take := func(_ context.Context, i int) error {
		enter(i, true)
		defer enter(i, false)
		left := stock[i] // guarded by the lock alone
		time.Sleep(time.Millisecond)
		if left == 0 {
			return stripe.ErrEmpty
		}
		stock[i] = left - 1
		mu.Lock()
		defer mu.Unlock()
		sold++
		return nil
	}
	for range processes {
		s := segments(t, open(), "stock", len(stock))
		for range buyers {
			group.Go(func() {
				err := s.Do(t.Context(), take)
				for ; err == nil; err = s.Do(t.Context(), take) {
				}
				if !errors.Is(err, stripe.ErrEmpty) {
					t.Error(err)
				}
			})
		}
	}
	group.Wait()
	if sold != total {
		t.Errorf("sold %d of %d", sold, total)
	}
}

func TestSellOut(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		sellOut(t, []int{100, 0, 7, 300, 0}, func() locker.Locker {
			other := l.Join()
			t.Cleanup(func() { other.Close() })
			return other
		})
	})
}

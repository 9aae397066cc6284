package nats_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/nats"
	"github.com/lockerproject/locker/internal/testbed"
)

// counter opens a Locker as a process of its own would, and counts its requests.
func counter(t *testing.T) (*locker.Client, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	l := locker.New(counted(t, testbed.SharedNats(t).Addr(), n, nats.WithPrefix("cost")))
	t.Cleanup(func() { _ = l.Close() })
	return l, n
}

// The costs are those that the package comment states.
func TestCosts(t *testing.T) {
	t.Parallel()
	l, n := counter(t)
	for range 10 {
		if err := take(t, l, "free").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.Load(); got > 25 {
		t.Errorf("%d requests for ten locks", got)
	}
	k := take(t, l, "held")
	waits, cancel := context.WithCancel(t.Context())
	defer cancel()
	var counts []*atomic.Int64
	for i := range 3 {
		w, n := counter(t)
		counts = append(counts, n)
		go func() { _, _ = w.Acquire(waits, "held") }()
		waitFor(t, 10*time.Second, "waiter", func() bool {
			queue, err := l.Inspect(t.Context(), "held")
			return err == nil && len(queue.Tickets) == i+2
		})
	}
	time.Sleep(time.Second) // until they have read everything once
	before := make([]int64, len(counts))
	for i, n := range counts {
		before[i] = n.Load()
	}
	begun := time.Now()
	time.Sleep(8 * time.Second)
	took := time.Since(begun)                         // more on a busy machine
	most := 5 * (took.Seconds() + 1) / took.Seconds() // what is done each second may fall once more into this time
	for i, n := range counts {
		if got := float64(n.Load()-before[i]) / took.Seconds(); got > most {
			t.Errorf("waiter %d sends %.1f requests a second", i, got)
		} else {
			t.Logf("waiter %d sends %.1f requests a second", i, got)
		}
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

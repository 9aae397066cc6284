package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// counted opens a Locker as a process of its own would, and counts its requests.
func counted(t *testing.T) (*locker.Client, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	d, err := memcached.New([]string{testbed.SharedMemcached(t).Addr()}, memcached.WithPrefix("cost"), memcached.WithDialer(counting(n)))
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	return l, n
}

// The costs are those that the package comment states.
func TestCosts(t *testing.T) {
	t.Parallel()
	l, n := counted(t)
	for range 10 {
		if err := take(t, l, "free").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := n.Load(); got > 22 {
		t.Errorf("%d requests for ten locks", got)
	}
	k := take(t, l, "held")
	waits, cancel := context.WithCancel(t.Context())
	defer cancel()
	var counts []*atomic.Int64
	for i := range 3 {
		w, n := counted(t)
		counts = append(counts, n)
		go func() { _, _ = w.Acquire(waits, "held") }()
		for {
			if queue, err := l.Inspect(t.Context(), "held"); err != nil || len(queue.Tickets) == i+2 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	time.Sleep(3 * time.Second) // until they have slowed down
	before := make([]int64, len(counts))
	for i, n := range counts {
		before[i] = n.Load()
	}
	begun := time.Now()
	time.Sleep(3 * time.Second)
	took := time.Since(begun) // more on a busy machine
	for i, n := range counts {
		if got := float64(n.Load()-before[i]) / took.Seconds(); got > 30 {
			t.Errorf("waiter %d sends %.1f requests a second", i, got)
		} else {
			t.Logf("waiter %d sends %.1f requests a second", i, got)
		}
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// However many locks a process holds, a round of renewals writes one heartbeat.
func TestCostsOfHeld(t *testing.T) {
	t.Parallel()
	writes := new(atomic.Int64)
	d, err := memcached.New([]string{testbed.SharedMemcached(t).Addr()}, memcached.WithPrefix("held"), memcached.WithDialer(countingLines(writes, "replace ", "cas ", "add ")))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	renewals := make([]driver.Renewal, 300)
	for i := range renewals {
		r := driver.Request{Name: fmt.Sprint(i), ID: fmt.Sprint(i), TTL: time.Minute, Renewed: true}
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Release(t.Context(), r.Hold(g.Token)) }()
		renewals[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL}
	}
	for _, want := range []int64{2, 1, 1} { // the first heartbeat finds nothing to replace
		before := writes.Load()
		if err := errors.Join(d.RenewAll(t.Context(), renewals)...); err != nil {
			t.Fatal(err)
		}
		if n := writes.Load() - before; n != want {
			t.Errorf("%d writes in a round of renewals of %d locks, want %d", n, len(renewals), want)
		}
	}
}

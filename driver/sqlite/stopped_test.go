package sqlite_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// A process is stopped between reading the clock and what it grants. The lease lasts as long as its holder believes,
// which counts it from its last heartbeat before the grant.
func TestStoppedBeforeItGrants(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var stopped atomic.Bool
	breaker := openAt(t, path, sqlite.WithSweep(time.Hour), sqlite.WithClock(func() int64 {
		now := sqlite.Clock()
		if stopped.Load() {
			time.Sleep(1500 * time.Millisecond) // the waiter sends a heartbeat meanwhile
		}
		return now
	}))
	held, err := breaker.Acquire(within(t), driver.Request{Name: "a", ID: "1", TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	waiter, broken := openAt(t, path), make(chan error, 1)
	r := driver.Request{
		Name: "a", ID: "2", TTL: 2 * time.Second, Wait: true, Renewed: true,
		Joined: func() {
			stopped.Store(true)
			go func() { broken <- breaker.Break(ctx, "a", held.Token) }()
		},
	}
	g, err := waiter.Acquire(within(t), r)
	if err != nil {
		t.Fatal(err)
	}
	tickets, err := waiter.Inspect(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	left := time.Duration(0)
	if len(tickets) == 1 {
		left = tickets[0].Remaining
	}
	if until := time.Until(g.Asked.Add(r.TTL)); until > left {
		t.Errorf("the holder relies on its lease for %v, and another may be granted the lock in %v", until, left)
	}
	if err := <-broken; err != nil {
		t.Error(err)
	}
}

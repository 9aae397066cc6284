package locker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := locker.New(memory.New(), locker.WithObserver(seen.add), locker.WithObserver(nil))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(3*time.Second))
		got := make(chan *locker.Lock)
		go func() { got <- acquire(t, l, "a", locker.WithOwner("me")) }()
		time.Sleep(5 * time.Second)
		release(t, k)
		release(t, <-got)
		synctest.Wait() // a renewal's event may be under way when the lock is released
		if a := seen.of(locker.EventAcquired); len(a) != 2 || a[1].Elapsed != 5*time.Second || a[1].Owner != "me" || a[1].Token == 0 {
			t.Errorf("acquired: %+v", a)
		}
		if r := seen.of(locker.EventReleased); len(r) != 2 || r[0].Elapsed != 5*time.Second {
			t.Errorf("released: %+v", r)
		}
		if w := seen.of(locker.EventWaiting); len(w) != 1 || w[0].Kind.String() != "waiting" {
			t.Errorf("waiting: %+v", w)
		}
		if r := seen.of(locker.EventRenewed); len(r) == 0 {
			t.Error("no events of renewals")
		}
	})
}

// Observers get the context of the call, and every acquisition that waits ends with
// an event.
func TestObserversBalance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		ctx := context.WithValue(context.Background(), key{}, "span")
		var mu sync.Mutex
		waiting, kinds := 0, map[locker.EventKind]int{}
		l := locker.New(newStub(), locker.WithObserver(func(ctx context.Context, e locker.Event) {
			mu.Lock()
			defer mu.Unlock()
			kinds[e.Kind]++
			if e.Kind == locker.EventWaiting {
				waiting++
			}
			if e.Waited {
				waiting--
			}
			if ctx.Value(key{}) != "span" || e.Kind != locker.EventAcquired && e.Kind != locker.EventWaiting && ctx.Err() != nil && e.Kind != locker.EventFailed {
				t.Errorf("%v came with %v", e.Kind, ctx)
			}
		}))
		defer l.Close()
		k, err := l.Acquire(ctx, "a", locker.WithTTL(3*time.Second), locker.WithOwner("me"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.Acquire(ctx, "a", locker.WithWait(2*time.Second))
		want(t, err, locker.ErrNotAcquired)
		_, err = l.TryAcquire(ctx, "a")
		want(t, err, locker.ErrNotAcquired)
		time.AfterFunc(time.Second, func() { _ = k.Release(ctx) })
		k, err = l.Acquire(ctx, "a", locker.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if err := l.Break(ctx, "a", k.Token()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the loss is an event of the background
		mu.Lock()
		defer mu.Unlock()
		if waiting != 0 || kinds[locker.EventWaiting] != 2 || kinds[locker.EventFailed] != 2 || kinds[locker.EventLost] != 1 || kinds[locker.EventRenewed] == 0 {
			t.Errorf("%d still wait; %v", waiting, kinds)
		}
	})
}

// Events of one lock come in order, though another goroutine ends it while the
// observers still run for the previous event.
func TestObserversAreCalledInOrder(t *testing.T) {
	for _, first := range []locker.EventKind{locker.EventAcquired, locker.EventRenewed} {
		t.Run(first.String(), func(t *testing.T) {
			t.Parallel()
			var l *locker.Client
			var once sync.Once
			var ended sync.WaitGroup
			reached := make(chan struct{})
			slow := func(_ context.Context, e locker.Event) {
				if e.Kind != first {
					return
				}
				once.Do(func() {
					broken := make(chan struct{})
					ended.Go(func() {
						_ = l.Break(context.Background(), e.Name, e.Token) // notifies of the loss before it returns
						close(broken)
					})
					select {
					case <-broken:
					case <-time.After(50 * time.Millisecond):
					}
					close(reached)
				})
			}
			var seen events
			l = locker.New(memory.New(), locker.WithObserver(slow), locker.WithObserver(seen.add))
			defer l.Close()
			const ttl = 6 * time.Second // renewed after two, and not lost before on a busy machine
			if _, err := l.Acquire(t.Context(), "a", locker.WithTTL(ttl)); err != nil {
				t.Fatal(err)
			}
			<-reached
			ended.Wait()
			_ = l.Close() // waits for the event of the loss
			kinds := seen.kinds()
			if i := slices.Index(kinds, first); i < 0 || i > slices.Index(kinds, locker.EventLost) {
				t.Errorf("events %v", kinds)
			}
		})
	}
}

// All events of an acquisition and of its lock have the same ID, which no other
// acquisition has, and name the store.
func TestEventsOfOneAcquisition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, seen := newStub(), &events{}
		l := locker.New(s, locker.WithObserver(seen.add))
		defer l.Close()
		k := acquire(t, l, "a")
		s.set(func(s *stub) {
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				r.Joined()
				s.set(func(s *stub) { s.acquire = nil })
				return driver.Grant{}, driver.ErrLost // the ticket was gone after an outage
			}
			s.renew = func(context.Context, driver.Renewal, renewFunc) error { return errDown }
		})
		go func() { _ = k.Release(context.Background()) }()
		acquire(t, l, "a", locker.WithTTL(3*time.Second))
		time.Sleep(4 * time.Second)

		ids := map[uint64][]locker.EventKind{}
		for _, e := range seen.all() {
			if e.Store != "memory" {
				t.Errorf("%v on store %q", e.Kind, e.Store)
			}
			if of := ids[e.ID]; len(of) == 0 || of[len(of)-1] != e.Kind {
				ids[e.ID] = append(of, e.Kind)
			}
		}
		of := func(kinds ...locker.EventKind) (id uint64) {
			for id, got := range ids {
				if slices.Equal(got, kinds) {
					return id
				}
			}
			t.Errorf("no acquisition has the events %v: %v", kinds, ids)
			return 0
		}
		of(locker.EventAcquired, locker.EventReleased)
		of(locker.EventWaiting, locker.EventRejoined, locker.EventAcquired, locker.EventRenewFailed, locker.EventLost)
		if len(ids) != 2 || ids[0] != nil {
			t.Errorf("the events have %d IDs: %v", len(ids), ids)
		}
	})
}

// A re-entry that has waited ends with the attributes that it began with, so that a
// gauge is counted down where it was counted up.
func TestEventsOfAReentryThatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		l := locker.New(memory.New(), locker.WithObserver(seen.add))
		defer l.Close()
		first := acquire(t, l, "a")
		var group sync.WaitGroup
		for _, opts := range [][]locker.Option{{locker.WithOwner("me")}, {locker.WithOwner("me"), locker.Shared()}} {
			group.Go(func() {
				if _, err := l.Acquire(context.Background(), "a", opts...); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if err := first.Release(t.Context()); err != nil {
			t.Error(err)
		}
		group.Wait()
		for _, e := range seen.all() {
			if e.Kind != locker.EventReentered {
				continue
			}
			if !e.Waited || !e.Shared || e.Elapsed != time.Second || e.Owner != "me" || e.Token == 0 {
				t.Errorf("event %+v", e)
			}
			return
		}
		t.Error("no event of the re-entry")
	})
}

// The event of a lock that Close releases has the context of its acquisition.
func TestCloseNotifiesWithTheContextOfTheAcquisition(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(context.Background(), key{}, "span")
	var seen []any
	l := locker.New(memory.New(), locker.WithObserver(func(ctx context.Context, e locker.Event) {
		if e.Kind == locker.EventReleased {
			seen = append(seen, ctx.Value(key{}))
		}
	}))
	if _, err := l.Acquire(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(seen, []any{"span"}) {
		t.Errorf("Released came with the values %v", seen)
	}
}

// Without observers events cost nothing: an uncontended cycle makes five allocations
// besides those of the driver.
func TestNoObserverCostsNothing(t *testing.T) {
	d := memory.New()
	l := locker.New(d)
	defer l.Close()
	cycle := testing.AllocsPerRun(1000, func() {
		release(t, acquire(t, l, "a"))
	})
	r := driver.Request{Name: "a", ID: "id", Owner: "me", TTL: time.Minute, Renewed: true, Wait: true}
	own := testing.AllocsPerRun(1000, func() {
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
			t.Fatal(err)
		}
	})
	if n := cycle - own; n > 5 {
		t.Errorf("a cycle makes %v allocations, and its driver %v: want at most 5 more", cycle, own)
	}
}

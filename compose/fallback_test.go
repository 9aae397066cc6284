package compose_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// backed is Fallback on two stores, and a Locker on each of them alone.
type backed struct {
	pair
	mu     sync.Mutex
	events []locker.Event // of degraded grants
}

func newBacked(t *testing.T) *backed {
	a, b := memory.New(), memory.New()
	p := &backed{pair: pair{first: &flaky{Driver: a.Join()}, second: &flaky{Driver: b.Join()}}}
	p.all = locker.New(compose.Fallback(p.first, p.second), locker.WithObserver(func(_ context.Context, e locker.Event) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if e.Degraded != nil {
			p.events = append(p.events, e)
		}
	}))
	p.on = [2]*locker.Client{locker.New(a), locker.New(b)}
	t.Cleanup(func() {
		for _, l := range []*locker.Client{p.all, p.on[0], p.on[1]} {
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return p
}

// reported fails the test unless n degraded grants were reported, and returns the last.
func (p *backed) reported(t *testing.T, n int) (last locker.Event) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.events) != n {
		t.Fatalf("%d degraded grants were reported, want %d: %v", len(p.events), n, p.events)
	}
	if n == 0 {
		return last
	}
	return p.events[n-1]
}

// The primary is used while it answers, and each grant of the secondary is reported.
func TestFallback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		k := acquire(t, p.all)
		p.queue(t, 0, 1)
		release(t, k)
		p.reported(t, 0)

		p.first.away.Store(true)
		k = acquire(t, p.all, locker.WithOwner("me"), locker.WithTTL(time.Second))
		q := p.queue(t, 1, 1)
		d := p.reported(t, 1)
		if d.Name != "x" || d.Owner != "me" || d.Token != k.Token() || q.Tickets[0].Token != k.Token() || !errors.Is(d.Degraded, locker.ErrUnavailable) {
			t.Errorf("reported %+v of token %d", d, k.Token())
		}
		time.Sleep(10 * time.Second) // it is renewed, on the secondary
		p.first.away.Store(false)
		time.Sleep(10 * time.Second)
		if k.Err() != nil {
			t.Errorf("the degraded lock: %v", k.Err())
		}
		release(t, k)
		p.queue(t, 1, 0)

		k = acquire(t, p.all)
		p.queue(t, 0, 1)
		p.queue(t, 1, 0)
		release(t, k)
		p.reported(t, 1)
	})
}

// Nothing but an unavailable primary degrades.
func TestFallbackOnlyWhenUnavailable(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		other := acquire(t, p.on[0])
		if _, err := p.all.TryAcquire(t.Context(), "x"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("try: %v", err)
		}
		if _, err := p.all.Acquire(t.Context(), "x", locker.WithWait(time.Minute)); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("wait: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if _, err := p.all.Acquire(ctx, "x"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("own deadline: %v", err)
		}
		release(t, other)
		p.reported(t, 0)
		p.queue(t, 1, 0)
	})
	bubble(t, func(t *testing.T) {
		denied := errors.New("wrong password")
		l := locker.New(compose.Fallback(refusing{memory.New(), denied}, memory.New()), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Degraded != nil {
				t.Errorf("degraded: %v", e)
			}
		}))
		defer l.Close()
		if _, err := l.Acquire(t.Context(), "x"); !errors.Is(err, denied) {
			t.Errorf("refused: %v", err)
		}
	})
}

type refusing struct {
	*memory.Driver
	err error
}

func (r refusing) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, r.err
}

// A primary that hangs gets the patience, or half of the caller's time.
func TestFallbackPatience(t *testing.T) {
	for _, c := range []struct{ deadline, want time.Duration }{
		{0, compose.DefaultPatience},
		{time.Hour, compose.DefaultPatience},
		{time.Second, 500 * time.Millisecond},
	} {
		bubble(t, func(t *testing.T) {
			p := newBacked(t)
			p.first.hangs.Store(true)
			ctx, begun := t.Context(), time.Now()
			if c.deadline > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.deadline)
				defer cancel()
			}
			k, err := p.all.TryAcquire(ctx, "x")
			if err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took != c.want {
				t.Errorf("deadline %v: granted after %v, want %v", c.deadline, took, c.want)
			}
			release(t, k)
			if d := p.reported(t, 1); !errors.Is(d.Degraded, locker.ErrUnavailable) {
				t.Errorf("cause %v", d.Degraded)
			}
			p.first.hangs.Store(false)
		})
	}
}

// A ticket that the primary has queued without answering is removed when it is back,
// while the degraded lock is held.
func TestFallbackRemovesOrphans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		p.first.loses.Store(true)
		k := acquire(t, p.all, locker.WithTTL(time.Hour))
		p.reported(t, 1)
		p.first.loses.Store(false)
		time.Sleep(2 * time.Second)
		p.queue(t, 0, 0)
		p.queue(t, 1, 1)
		if k.Err() != nil {
			t.Errorf("the degraded lock: %v", k.Err())
		}
		release(t, k)
	})
}

// If the primary loses its orphan of a degraded lock, the lock is not lost.
func TestFallbackIgnoresOrphans(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		p.first.loses.Store(true)
		time.AfterFunc(time.Second, func() { p.first.hangs.Store(true) })
		k := acquire(t, p.all)
		if err := p.on[0].Break(t.Context(), "x", p.queue(t, 0, 1).Tickets[0].Token); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if k.Err() != nil {
			t.Errorf("the degraded lock: %v", k.Err())
		}
		p.first.loses.Store(false)
		p.first.hangs.Store(false)
		release(t, k)
	})
}

// ErrNoTicket of the secondary does not mean that the primary has no ticket (D9).
func TestFallbackNoTicketIsTrue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, second := &flaky{Driver: memory.New()}, &flaky{Driver: memory.New()}
		f := compose.Fallback(first, second)
		defer f.Close()
		second.away.Store(true)
		r := driver.Request{Name: "x", ID: "1", TTL: time.Minute}
		first.loses.Store(true)
		if _, err := f.Acquire(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("answer lost: %v", err)
		}
		first.loses.Store(false)
		first.away.Store(true)
		r.ID = "2"
		if _, err := f.Acquire(t.Context(), r); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("both refuse: %v", err)
		}
		first.away.Store(false)
	})
}

func TestFallbackBothAway(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		p.first.away.Store(true)
		p.second.away.Store(true)
		if _, err := p.all.Acquire(t.Context(), "x"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("both away: %v", err)
		}
		if err := p.all.Ping(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("ping: %v", err)
		}
		p.second.away.Store(false)
		if err := p.all.Ping(t.Context()); err != nil {
			t.Errorf("ping: %v", err)
		}
		other := acquire(t, p.on[1])
		if _, err := p.all.TryAcquire(t.Context(), "x"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("held on the secondary: %v", err)
		}
		release(t, other)
		p.first.away.Store(false)
	})
}

// The documentation says that a name can have two holders; Inspect shows both.
func TestFallbackGrantsTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		before := acquire(t, p.all, locker.WithOwner("before"))
		p.first.away.Store(true)
		during := acquire(t, p.all, locker.WithOwner("during"))
		p.first.away.Store(false)
		time.Sleep(2 * time.Second) // until it is noticed that the primary is back
		if before.Err() != nil || during.Err() != nil {
			t.Errorf("%v, %v: then the documentation is wrong", before.Err(), during.Err())
		}
		q, err := p.all.Inspect(t.Context(), "x")
		var owners []string
		for _, k := range q.Tickets {
			if k.Held {
				owners = append(owners, k.Owner)
			}
		}
		if err != nil || !slices.Equal(owners, []string{"during", "before"}) {
			t.Errorf("holders %v, %v", owners, err)
		}
		release(t, during)
		release(t, before)
	})
}

// Tokens over both changes of store: with a secondary above the primary, and with two
// stores that number by one clock, as two in this process do.
func TestFallbackTokens(t *testing.T) {
	for name, c := range map[string]struct {
		base          uint64
		grow, growAft bool
	}{
		"one clock": {0, true, true},
		"base":      {base, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				first := &flaky{Driver: memory.New()}
				l := locker.New(compose.Fallback(first, compose.TokenBase(memory.New(), c.base)))
				defer l.Close()
				var tokens [3]uint64
				for i := range tokens {
					first.away.Store(i == 1)
					time.Sleep(2 * time.Second) // until it is noticed that the primary is back
					k := acquire(t, l)
					tokens[i] = k.Token()
					release(t, k)
				}
				if tokens[1] > tokens[0] != c.grow || tokens[2] > tokens[1] != c.growAft {
					t.Errorf("tokens %v", tokens)
				}
			})
		})
	}
}

// Observers see which grants were degraded, also through other composed drivers.
func TestObserversSeeDegradedGrants(t *testing.T) {
	bubble(t, func(t *testing.T) {
		primary := &flaky{Driver: memory.New()}
		d := compose.TokenBase(compose.All(memory.New(), compose.Fallback(primary, memory.New())), 1)
		var degraded []bool
		l := locker.New(d, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventAcquired {
				degraded = append(degraded, e.Degraded != nil)
			}
		}))
		defer l.Close()
		for _, away := range []bool{false, true, false} {
			primary.away.Store(away)
			time.Sleep(2 * time.Second) // until it is noticed that the primary is back
			release(t, acquire(t, l))
		}
		if !slices.Equal(degraded, []bool{false, true, false}) {
			t.Errorf("degraded: %v", degraded)
		}
	})
}

// gaveUp is a store that works, and gives the ticket of the first waiter up (D8): an earlier request may still put it back.
type gaveUp struct {
	driver.Driver
	once bool
}

func (d *gaveUp) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if r.Wait && !d.once {
		d.once = true
		wait, cancel := context.WithCancel(ctx)
		joined := r.Joined
		r.Joined = func() { joined(); cancel() }
		_, _ = d.Driver.Acquire(wait, r)
		if wait.Err() != nil {
			return driver.Grant{}, driver.Unavailable(errors.New("a request for the ticket may still arrive"))
		}
	}
	return d.Driver.Acquire(ctx, r)
}

// A waiter whose ticket the primary's driver has given up queues there again: the primary answers, and somebody holds the name there.
func TestGivenUpByAPrimaryThatWorks(t *testing.T) {
	store := memory.New()
	other := locker.New(store.Join())
	defer other.Close()
	k, err := other.Acquire(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(compose.Fallback(&gaveUp{Driver: store}, memory.New()))
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	two, err := l.Acquire(ctx, "a")
	if err == nil && k.Err() == nil {
		t.Errorf("two hold the name: tokens %d and %d, and the primary was never away", k.Token(), two.Token())
	}
}

package compose_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// pair is All of two stores, and a Locker on each of them alone.
type pair struct {
	first, second *flaky
	all           *locker.Client
	on            [2]*locker.Client
}

func newPair(t *testing.T) *pair {
	a, b := memory.New(), memory.New()
	p := &pair{first: &flaky{Driver: a.Join()}, second: &flaky{Driver: b.Join()}}
	p.all = locker.New(compose.All(p.first, p.second))
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

// queue fails the test unless the i-th store has n tickets for the name.
func (p *pair) queue(t *testing.T, i, n int) locker.Queue {
	t.Helper()
	q, err := p.on[i].Inspect(t.Context(), "x")
	if err != nil || len(q.Tickets) != n {
		t.Errorf("store %d has %d tickets, want %d (%v)", i+1, len(q.Tickets), n, err)
	}
	return q
}

func acquire(t *testing.T, l *locker.Client, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), "x", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t *testing.T, k *locker.Lock) {
	t.Helper()
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// background acquires x through All, and sends the lock or nil.
func (p *pair) background(t *testing.T) <-chan *locker.Lock {
	got := make(chan *locker.Lock, 1)
	go func() {
		k, err := p.all.Acquire(t.Context(), "x", locker.WithTTL(time.Second))
		if err != nil {
			t.Error(err)
		}
		got <- k
	}()
	synctest.Wait()
	return got
}

func bubble(t *testing.T, f func(*testing.T)) { t.Helper(); synctest.Test(t, f) }

// The ticket on the first store is renewed while the second store is waited for, for much
// longer than its lease. The lock that is granted then has a whole lease.
func TestAllKeepsWhileItWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		other := acquire(t, p.on[1])
		got := p.background(t)
		time.Sleep(time.Minute + 300*time.Millisecond)
		if q := p.queue(t, 0, 1); !q.Tickets[0].Held {
			t.Error("the first store does not hold what it has granted")
		}
		release(t, other)
		k := <-got
		if q := p.queue(t, 0, 1); q.Tickets[0].Remaining < 900*time.Millisecond {
			t.Errorf("the lease on the first store has %v left", q.Tickets[0].Remaining)
		}
		release(t, k)
		p.queue(t, 0, 0)
		p.queue(t, 1, 0)
	})
}

// A part that is lost while others are waited for is no grant: the ticket queues again.
func TestAllLosesAPartWhileItWaits(t *testing.T) {
	for name, lose := range map[string]func(*testing.T, *pair){
		// The loss is pushed at once, long before the next renewal.
		"broken": func(t *testing.T, p *pair) {
			if err := p.on[0].Break(t.Context(), "x", p.queue(t, 0, 1).Tickets[0].Token); err != nil {
				t.Error(err)
			}
		},
		"away": func(_ *testing.T, p *pair) {
			p.first.away.Store(true)
			time.Sleep(1100 * time.Millisecond)
			p.first.away.Store(false)
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := newPair(t)
				other := acquire(t, p.on[1])
				got := p.background(t)
				before := p.queue(t, 0, 1).Tickets[0].Token
				lose(t, p)
				time.Sleep(100 * time.Millisecond)
				if q := p.queue(t, 0, 1); q.Tickets[0].Token == before || !q.Tickets[0].Held {
					t.Errorf("the ticket did not queue again: %+v", q)
				}
				p.queue(t, 1, 2)
				release(t, other)
				release(t, <-got)
			})
		})
	}
}

// A lock that one store has lost is lost.
func TestAllLosesAPart(t *testing.T) {
	for i := range 2 {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			k := acquire(t, p.all)
			if err := p.on[i].Break(t.Context(), "x", p.queue(t, i, 1).Tickets[0].Token); err != nil {
				t.Fatal(err)
			}
			select {
			case <-k.Done():
			case <-time.After(time.Millisecond):
				t.Errorf("a break on store %d is not reported", i+1)
			}
			if err := k.Release(t.Context()); !errors.Is(err, locker.ErrLost) {
				t.Errorf("release: %v", err)
			}
			time.Sleep(time.Second)
			p.queue(t, 0, 0)
			p.queue(t, 1, 0)
		})
	}
}

// A lock is lost if one part is not renewed, though the other is and no loss is pushed.
func TestAllIsNotRenewed(t *testing.T) {
	for i := range 2 {
		bubble(t, func(t *testing.T) {
			p := newPair(t)
			k := acquire(t, p.all, locker.WithTTL(time.Second))
			store := []*flaky{p.first, p.second}[i]
			store.away.Store(true)
			time.Sleep(time.Second)
			if !errors.Is(k.Err(), locker.ErrLost) {
				t.Errorf("store %d away for the whole lease: %v", i+1, k.Err())
			}
			store.away.Store(false)
			time.Sleep(time.Second)
			release(t, acquire(t, p.all))
		})
	}
}

// Inspect shows a holder on one store only, and then the ticket that waits for it there.
func TestAllInspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		other := acquire(t, p.on[1], locker.WithOwner("other"))
		got := p.background(t)
		q, err := p.all.Inspect(t.Context(), "x")
		if err != nil || len(q.Tickets) != 2 || q.Tickets[0].Owner != "other" || !q.Tickets[0].Held || q.Tickets[1].Held {
			t.Errorf("%+v, %v", q, err)
		}
		if names, err := p.all.List(t.Context()); err != nil || len(names) != 1 {
			t.Errorf("names %v, %v", names, err)
		}
		if err := p.all.Break(t.Context(), "x", other.Token()); err != nil {
			t.Error(err)
		}
		release(t, <-got)
	})
}

// A store that refuses, or is away, leaves nothing on the others.
func TestAllUndoesWhatItCannotHave(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		other := acquire(t, p.on[1])
		if _, err := p.all.TryAcquire(t.Context(), "x"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("try: %v", err)
		}
		p.queue(t, 0, 0)
		if n := p.first.asked.Load(); n != 0 {
			t.Errorf("the first store was asked %d times for what the second refuses", n)
		}
		release(t, other)

		p.second.away.Store(true)
		if _, err := p.all.Acquire(t.Context(), "x"); !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("second store away: %v", err)
		}
		p.second.away.Store(false)
		time.Sleep(time.Second)
		p.queue(t, 0, 0)
		release(t, acquire(t, p.all))
	})
}

// blind is a store whose queue looks empty: a try is queued and loses the race.
type blind struct{ *memory.Driver }

func (blind) Inspect(context.Context, string) ([]driver.Ticket, error) { return nil, nil }

func TestAllTakesALostRaceBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := memory.New(), memory.New()
		other, all := locker.New(b.Join()), locker.New(compose.All(a, blind{b}))
		defer all.Close()
		defer other.Close()
		release(t, acquire(t, all))
		k := acquire(t, other)
		if _, err := all.TryAcquire(t.Context(), "x"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("try: %v", err)
		}
		if q, _ := a.Inspect(t.Context(), "x"); len(q) != 0 {
			t.Errorf("left on the first store: %v", q)
		}
		release(t, k)
	})
}

// leaving answers an Acquire with an error, after which another store is away.
type leaving struct {
	*memory.Driver
	err   error
	other *flaky
}

func (r leaving) Inspect(context.Context, string) ([]driver.Ticket, error) { return nil, nil }

func (r leaving) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	r.other.away.Store(true)
	return driver.Grant{}, r.err
}

// A request that a store refuses, or has lost, is not said to be so while another store may have its ticket (D9).
func TestAllDoesNotSayGoneTooEarly(t *testing.T) {
	for _, answer := range []error{driver.ErrNotAcquired, driver.ErrLost} {
		bubble(t, func(t *testing.T) {
			a := memory.New()
			defer a.Close()
			first := &flaky{Driver: a.Join()}
			all := compose.All(first, leaving{memory.New(), answer, first})
			defer all.Close()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r := driver.Request{Name: "x", ID: "1", TTL: time.Minute, Wait: answer == driver.ErrLost} //nolint:errorlint // the very error
			_, err := all.Acquire(ctx, r)
			if err == nil || errors.Is(err, answer) || errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("%v, want an error that is not %v", err, answer)
			}
			first.away.Store(false)
			if err := all.Release(t.Context(), r.Hold(0)); err != nil {
				t.Errorf("release: %v", err)
			}
			if q, _ := a.Inspect(t.Context(), "x"); len(q) != 0 {
				t.Errorf("left on the first store: %v", q)
			}
		})
	}
}

// Once it is queued, a request waits for a store that is down (D7).
func TestAllWaitsForAStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		other := acquire(t, p.on[0])
		got := p.background(t)
		p.second.away.Store(true)
		release(t, other)
		time.Sleep(10 * time.Second)
		p.second.away.Store(false)
		k := <-got
		if q := p.queue(t, 0, 1); !q.Tickets[0].Held {
			t.Error("not held on the first store")
		}
		release(t, k)
	})
}

// Until it is queued, a request does not wait for a store that is down, and what it has on the others is
// removed (D7).
func TestAllDoesNotWaitBeforeItIsQueued(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPair(t)
		p.second.away.Store(true)
		begun := time.Now()
		_, err := p.all.Acquire(t.Context(), "x")
		if took := time.Since(begun); !errors.Is(err, locker.ErrUnavailable) || took > 100*time.Millisecond {
			t.Errorf("%v after %v, want ErrUnavailable at once", err, took)
		}
		p.second.away.Store(false)
		time.Sleep(time.Second)
		p.queue(t, 0, 0)
	})
}

// forgetful is a store that loses a waiter's ticket once.
type forgetful struct {
	*memory.Driver
	lost atomic.Bool
}

func (f *forgetful) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if f.lost.CompareAndSwap(false, true) {
		return driver.Grant{}, driver.ErrLost
	}
	return f.Driver.Acquire(ctx, r)
}

// A ticket that the second store has lost is removed from the first one before the next
// ticket is queued, because that would wait for it.
func TestAllQueuesAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		l := locker.New(compose.All(memory.New(), &forgetful{Driver: memory.New()}))
		defer l.Close()
		begun := time.Now()
		release(t, acquire(t, l))
		if waited := time.Since(begun); waited > time.Second {
			t.Errorf("granted after %v", waited)
		}
	})
}

func TestAllPanics(t *testing.T) {
	d := memory.New()
	defer d.Close()
	for name, f := range map[string]func(){
		"none":      func() { compose.All() },
		"nil":       func() { compose.All(d, nil) },
		"authority": func() { compose.All(d).Authority(1) },
		"base":      func() { compose.TokenBase(d, 1<<62+1) },
		"no base":   func() { compose.TokenBase(nil, 1) },
		"fallback":  func() { compose.Fallback(d, nil) },
		"patience":  func() { compose.Fallback(d, d).Patience(0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

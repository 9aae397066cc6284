package locker_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// away is a memory store that may go away: then it refuses every Inspect, or leaves it
// without an answer.
type away struct {
	*memory.Driver
	refuses, hangs atomic.Bool
	inspected      atomic.Int64
}

func (d *away) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	d.inspected.Add(1)
	switch {
	case d.refuses.Load():
		return nil, driver.Unavailable(errDown)
	case d.hangs.Load():
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	return d.Driver.Inspect(ctx, name)
}

// waitEnds are the ways in which a wait may end without a grant.
var waitEnds = map[string]struct {
	is      error
	acquire func(l locker.Locker) error
}{
	"limit": {locker.ErrNotAcquired, func(l locker.Locker) error {
		_, err := l.Acquire(context.Background(), "x", locker.WithWait(3*time.Second))
		return err
	}},
	"deadline": {context.DeadlineExceeded, func(l locker.Locker) error {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, err := l.Acquire(ctx, "x")
		return err
	}},
	"cancel": {context.Canceled, func(l locker.Locker) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer time.AfterFunc(3*time.Second, cancel).Stop()
		_, err := l.Acquire(ctx, "x")
		return err
	}},
}

// A wait that ends while the store does not answer says so, though the store has queued the
// ticket. One that ends when the store is back does not.
func TestOutageWhileQueued(t *testing.T) {
	for how, end := range waitEnds {
		for what, fault := range map[string]func(d *away, on bool){
			"refused": func(d *away, on bool) { d.refuses.Store(on) },
			"silent":  func(d *away, on bool) { d.hangs.Store(on) },
		} {
			t.Run(how+"/"+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := &away{Driver: memory.New()}
					l := locker.New(d)
					defer l.Close()
					acquire(t, l, "x")
					for _, back := range []bool{false, true} {
						time.AfterFunc(500*time.Millisecond, func() { fault(d, true) })
						if back {
							time.AfterFunc(1500*time.Millisecond, func() { fault(d, false) })
						}
						begun := time.Now()
						err := end.acquire(l)
						want(t, err, end.is)
						if errors.Is(err, locker.ErrUnavailable) == back || time.Since(begun) != 3*time.Second {
							t.Errorf("the store is back: %v; after %v: %v", back, time.Since(begun), err)
						}
						fault(d, false)
					}
				})
			})
		}
	}
}

// telling is a store whose driver says by itself what is silent: of this name it is not.
type telling struct{ *away }

func (telling) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{Crash: ttl + time.Second, Liveness: 5 * time.Second, Silence: time.Second}
}

// A store whose driver says by itself what is silent is asked for no sign of life: one of its servers may be silent, and the
// one of this name not.
func TestNoPingOfATellingDriver(t *testing.T) {
	for how, end := range waitEnds {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := telling{&away{Driver: memory.New()}}
				l := locker.New(d)
				defer l.Close()
				acquire(t, l, "x")
				d.refuses.Store(true)
				err := end.acquire(l)
				want(t, err, end.is)
				if n := d.inspected.Load(); n > 0 || errors.Is(err, locker.ErrUnavailable) {
					t.Errorf("%d pings: %v", n, err)
				}
				// The driver knows nothing of a call that waits for another one of its owner.
				go func() { _, _ = l.Acquire(t.Context(), "x", locker.WithOwner("me"), locker.WithWait(time.Minute)) }()
				synctest.Wait()
				_, err = l.Acquire(t.Context(), "x", locker.WithOwner("me"), locker.WithWait(3*time.Second))
				want(t, err, locker.ErrUnavailable)
			})
		})
	}
}

// mute is a store that answers nothing but Acquire and Release.
type mute struct{ *stub }

func (*mute) Inspect(ctx context.Context, _ string) ([]driver.Ticket, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// A wait that ends while the renewal of its late grant is not answered says that the store is silent.
func TestOutageWithALateGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(_ context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
			asked := time.Now()
			r.Joined()
			time.Sleep(2 * time.Second) // longer than the lease
			return driver.Grant{Token: 1, Asked: asked}, nil
		}
		s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		for _, d := range []driver.Driver{&mute{s}, tellingStub{s}} {
			l := locker.New(d)
			defer l.Close()
			_, err := l.Acquire(t.Context(), "x", locker.WithTTL(time.Second), locker.WithWait(8*time.Second))
			want(t, err, locker.ErrNotAcquired)
			want(t, err, locker.ErrUnavailable)
		}
	})
}

// tellingStub is a stub whose driver says by itself what is silent, while a ticket is queued.
type tellingStub struct{ *stub }

func (tellingStub) Bounds(ttl time.Duration) driver.Bounds { return telling{}.Bounds(ttl) }

// A wait that ends while the store does not answer the next request for a ticket that was lost says so.
func TestOutageWhileQueueingAgain(t *testing.T) {
	for silence, away := range map[time.Duration]bool{500 * time.Millisecond: false, 2 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			s.acquire = func(_ context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
				r.Joined()
				s.set(func(s *stub) {
					s.acquire = func(ctx context.Context, _ driver.Request, _ acquireFunc) (driver.Grant, error) {
						<-ctx.Done()
						return driver.Grant{}, context.Cause(ctx)
					}
				})
				time.Sleep(2 * time.Second)
				return driver.Grant{}, driver.ErrLost
			}
			l := locker.New(tellingStub{s})
			defer l.Close()
			_, err := l.Acquire(t.Context(), "x", locker.WithWait(2*time.Second+silence))
			want(t, err, locker.ErrNotAcquired)
			if errors.Is(err, locker.ErrUnavailable) != away {
				t.Errorf("silent for %v: %v", silence, err)
			}
		})
	}
}

// While goroutines wait, the Client asks the store once a second, however many they are.
// While none does, it asks nothing.
func TestOnePingForAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &away{Driver: memory.New()}
		l := locker.New(d)
		defer l.Close()
		k := acquire(t, l, "x")
		time.Sleep(time.Minute)
		if n := d.inspected.Load(); n != 0 {
			t.Errorf("%d pings while nobody waits", n)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var group sync.WaitGroup
		for range 100 {
			group.Go(func() { _, _ = l.Acquire(ctx, "x") })
		}
		time.Sleep(time.Minute + time.Millisecond)
		if n := d.inspected.Load(); n != 60 {
			t.Errorf("%d pings in a minute of 100 waiters, want 60", n)
		}
		cancel()
		group.Wait()
		release(t, k)
		time.Sleep(time.Second)
		d.inspected.Store(0)
		time.Sleep(time.Minute)
		if n := d.inspected.Load(); n != 0 {
			t.Errorf("%d pings while nobody waits any more", n)
		}
	})
}

// A store that refuses the ping, but not because it is away, has answered.
func TestRefusedPingIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(&denied{memory.New()})
		defer l.Close()
		acquire(t, l, "x")
		err := waitEnds["limit"].acquire(l)
		want(t, err, locker.ErrNotAcquired)
		if errors.Is(err, locker.ErrUnavailable) || strings.Contains(err.Error(), "denied") {
			t.Errorf("a refused ping is taken for an outage: %v", err)
		}
	})
}

type denied struct{ *memory.Driver }

func (*denied) Inspect(context.Context, string) ([]driver.Ticket, error) {
	return nil, errors.New("permission denied")
}

// A waiter that joins while the last ping is unanswered has an answer: its own.
func TestJoinIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &away{Driver: memory.New()}
		l := locker.New(d)
		defer l.Close()
		acquire(t, l, "x")
		go func() { _, _ = l.Acquire(context.Background(), "x") }()
		d.hangs.Store(true)
		time.Sleep(2500 * time.Millisecond) // the store is away
		d.hangs.Store(false)
		_, err := l.Acquire(context.Background(), "x", locker.WithWait(100*time.Millisecond))
		want(t, err, locker.ErrNotAcquired)
		if errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the store had answered this very call: %v", err)
		}
	})
}

// A store that is so busy that the ping waits is not away as long as it answers others.
func TestBusyIsNotAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &away{Driver: memory.New()}
		l := locker.New(d)
		defer l.Close()
		acquire(t, l, "x")
		d.hangs.Store(true) // every ping
		stop := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(100 * time.Millisecond):
					release(t, acquire(t, l, "y"))
				}
			}
		})
		for how, end := range waitEnds {
			err := end.acquire(l)
			want(t, err, end.is)
			if errors.Is(err, locker.ErrUnavailable) {
				t.Errorf("%s: the store answers: %v", how, err)
			}
		}
		close(stop)
		group.Wait()
		d.hangs.Store(false)
	})
}

// An answer that came after a ping was sent outdoes the silence of that ping.
func TestJoinDuringAPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &away{Driver: memory.New()}
		l := locker.New(d)
		defer l.Close()
		acquire(t, l, "x")
		go func() { _, _ = l.Acquire(context.Background(), "x") }()
		time.Sleep(500 * time.Millisecond)
		d.hangs.Store(true)
		time.Sleep(time.Second) // the ping is under way
		_, err := l.Acquire(context.Background(), "x", locker.WithWait(600*time.Millisecond))
		want(t, err, locker.ErrNotAcquired)
		if errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("the store had answered this very call, after the ping was sent: %v", err)
		}
		d.hangs.Store(false)
	})
}

// Waiters that come and go all the time neither hide an outage nor make one, and leave no
// ping behind.
func TestWaitersComeAndGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &away{Driver: memory.New()}
		l := locker.New(d)
		acquire(t, l, "x")
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
				for range 10 {
					_, err := l.Acquire(context.Background(), "x", locker.WithWait(time.Duration(1+i%50)*30*time.Millisecond))
					if !errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrUnavailable) {
						t.Errorf("a store that answers: %v", err)
					}
				}
			})
		}
		group.Wait()
		time.Sleep(time.Second)
		d.inspected.Store(0)
		time.Sleep(time.Minute)
		if n := d.inspected.Load(); n != 0 {
			t.Errorf("%d pings while nobody waits any more", n)
		}
		go func() { _, _ = l.Acquire(context.Background(), "x") }()
		time.Sleep(1500 * time.Millisecond)
		d.hangs.Store(true)
		time.Sleep(time.Second) // a ping is under way
		want(t, l.Close(), nil)
	})
}

package coord_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/coord"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/memorytest"
)

var errDenied = errors.New("the account may not")

// faulty is a store whose at-th request fails.
type faulty struct {
	*memory.Driver
	at    int64
	fault string // "down": not done, and the store is away; "lost": done; "denied": not done
	n     atomic.Int64
	asks  atomic.Bool // the request that fails is one whose refusal its caller is told
}

// request does a request. done reports that it was done, whatever the error.
func (f *faulty) request(asks bool, do func() error) (done bool, err error) {
	if f.n.Add(1) != f.at {
		return true, do()
	}
	f.asks.Store(asks)
	switch f.fault {
	case "down":
		return false, memorytest.ErrDown
	case "denied":
		return false, errDenied
	}
	return true, errors.Join(do(), memorytest.ErrDown)
}

func (f *faulty) Acquire(ctx context.Context, r driver.Request) (g driver.Grant, err error) {
	done, err := f.request(true, func() (err error) { g, err = f.Driver.Acquire(ctx, r); return err })
	if !done {
		err = driver.NoTicket(err)
	}
	return g, err
}

func (f *faulty) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	_, err := f.request(false, func() error { return f.Driver.Renew(ctx, h, ttl) })
	return err
}

func (f *faulty) Release(ctx context.Context, h driver.Hold) error {
	_, err := f.request(false, func() error { return f.Driver.Release(ctx, h) })
	return err
}

func (f *faulty) Inspect(ctx context.Context, name string) (q []driver.Ticket, err error) {
	_, err = f.request(name != memorytest.PingName, func() (err error) { q, err = f.Driver.Inspect(ctx, name); return err })
	return q, err
}

// Whichever request of one process fails: an outage of a moment fails nobody, a refusal is
// what the caller is told, and what somebody has done once is not done again.
func TestFaultAtEachRequest(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, one, other locker.Locker) (errs [2]error){
		"barrier": faultyBarrier, "latch": faultyLatch, "once": faultyOnce,
	} {
		for _, fault := range []string{"down", "lost", "denied"} {
			for at, reached := int64(1), true; reached; at++ {
				synctest.Test(t, func(t *testing.T) {
					space := memory.New()
					f := &faulty{Driver: space.Join(), at: at, fault: fault}
					one, other := locker.New(f), locker.New(space.Join())
					errs := run(t, one, other)
					reached = f.n.Load() >= at
					what := fmt.Sprintf("%s, request %d %s", name, at, fault)
					switch {
					case fault != "denied" && (errs[0] != nil || errs[1] != nil):
						t.Errorf("%s: %v, the other process: %v", what, errs[0], errs[1])
					case f.asks.Load() && fault == "denied" && !errors.Is(errs[0], errDenied):
						t.Errorf("%s: %v, want the store's error", what, errs[0])
					case errs[0] != nil && !errors.Is(errs[0], errDenied):
						t.Errorf("%s: %v", what, errs[0])
					case errs[0] == nil && errs[1] != nil:
						t.Errorf("%s: the other process: %v", what, errs[1])
					}
					if err := errors.Join(one.Close(), other.Close()); err != nil {
						t.Errorf("%s: close: %v", what, err)
					}
					time.Sleep(2 * time.Minute) // all that is kept has ended
					if names, err := space.List(t.Context()); err != nil || len(names) > 0 {
						t.Errorf("%s: there are still tickets of %q, %v", what, names, err)
					}
					if err := space.Close(); err != nil {
						t.Error(err)
					}
				})
				if at > 100 {
					t.Fatalf("%s: more than 100 requests", name)
				}
			}
		}
	}
}

// sideBySide runs one, and a second later other, too.
func sideBySide(one, other func() error) (errs [2]error) {
	var group sync.WaitGroup
	group.Go(func() { errs[0] = one() })
	time.Sleep(time.Second)
	errs[1] = other()
	group.Wait()
	return errs
}

func faultyBarrier(t *testing.T, one, other locker.Locker) [2]error {
	t.Helper()
	wait := func(l locker.Locker) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			return barrier(t, l, "b", 2).Wait(ctx)
		}
	}
	return sideBySide(wait(one), wait(other))
}

func faultyLatch(t *testing.T, one, other locker.Locker) [2]error {
	t.Helper()
	pass := func(l locker.Locker, party string) func() error {
		return func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			a := latch(t, l, 2, time.Minute)
			for {
				err := a.CountDown(ctx, party)
				if err == nil {
					return a.Wait(ctx)
				}
				if !errors.Is(err, locker.ErrUnavailable) {
					return err
				}
			}
		}
	}
	return sideBySide(pass(one, "a"), pass(other, "b"))
}

func faultyOnce(t *testing.T, one, other locker.Locker) [2]error {
	t.Helper()
	var ran atomic.Int64
	once := func(l locker.Locker) func() error {
		return func() error {
			_, err := coord.Once(t.Context(), l, "job", time.Minute, func(context.Context) error { ran.Add(1); return nil })
			if errors.Is(err, locker.ErrUnavailable) {
				return nil
			}
			return err
		}
	}
	errs := sideBySide(once(one), once(other))
	if ran.Load() > 1 {
		t.Errorf("it ran %d times", ran.Load())
	}
	return errs
}

package compose_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// Whatever fails in whatever order: programs that have a store in common exclude each other,
// and when the faults are over nothing is left on any store, and locks are granted again.
func TestAnyOrderOfFaults(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 5
	}
	one := func(d, _ driver.Driver) driver.Driver { return d }
	other := func(_, d driver.Driver) driver.Driver { return d }
	all := func(a, b driver.Driver) driver.Driver { return compose.All(a, b) }
	fallback := func(a, b driver.Driver) driver.Driver {
		return compose.Fallback(a, b).Patience(200 * time.Millisecond)
	}
	both := func(a, b driver.Driver) driver.Driver {
		return compose.All(compose.TokenBase(a, 7), compose.Fallback(b, memory.New()))
	}
	for name, programs := range map[string][]program{
		"all":             {{all, 3}, {all, 3}, {one, 1}, {other, 2}},
		"fallback":        {{fallback, 0}, {fallback, 0}, {one, 0}, {other, 0}},
		"fallback in all": {{both, 1}, {both, 1}, {one, 1}, {other, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range seeds {
				t.Run(fmt.Sprint(seed), func(t *testing.T) {
					bubble(t, func(t *testing.T) { disorder(t, seed, programs) })
				})
			}
		})
	}
}

type program struct {
	compose  func(a, b driver.Driver) driver.Driver
	excludes int // the stores that all its locks are held on, as a set of bits
}

func disorder(t *testing.T, seed uint64, programs []program) {
	stores := [2]*memory.Driver{memory.New(), memory.New()}
	var (
		mu      sync.Mutex
		holders []*locker.Lock
		on      []int // the stores that exclude others from it
		group   sync.WaitGroup
		clients []*locker.Client
	)
	until := time.Now().Add(2 * time.Minute)
	for i, c := range programs {
		p := [2]*flaky{{Driver: stores[0].Join()}, {Driver: stores[1].Join()}}
		l := locker.New(c.compose(p[0], p[1]))
		clients = append(clients, l)
		group.Go(func() { // its ways to the stores fail
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for time.Now().Before(until) {
				f := p[r.IntN(2)]
				fault := []interface{ Store(bool) }{&f.away, &f.hangs, &f.loses}[r.IntN(3)]
				fault.Store(r.IntN(4) == 0)
				time.Sleep(time.Duration(r.IntN(1500)) * time.Millisecond)
			}
			for _, f := range p {
				f.away.Store(false)
				f.hangs.Store(false)
				f.loses.Store(false)
			}
		})
		for j := range 2 {
			group.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(10+2*i+j)))
				for time.Now().Before(until) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(5000))*time.Millisecond)
					opts := []locker.Option{locker.WithTTL(time.Duration(300+r.IntN(3000)) * time.Millisecond)}
					if r.IntN(8) == 0 { // so that what is forgotten does not end by itself
						opts = append(opts, locker.WithTTL(time.Hour))
					}
					if r.IntN(2) == 0 {
						opts = append(opts, locker.WithWait(time.Duration(r.IntN(3000))*time.Millisecond))
					}
					k, err := l.Acquire(ctx, "x", opts...)
					cancel()
					if err != nil {
						if errors.Is(err, locker.ErrLost) {
							t.Error(err)
						}
						time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
						continue
					}
					mu.Lock()
					for i, h := range holders {
						if on[i]&c.excludes != 0 && h.Err() == nil && k.Err() == nil {
							t.Errorf("two holders: tokens %d and %d", h.Token(), k.Token())
						}
					}
					holders, on = append(holders, k), append(on, c.excludes)
					mu.Unlock()
					time.Sleep(time.Duration(r.IntN(1000)) * time.Millisecond)
					_ = k.Release(t.Context()) // it may be lost, or the store away
				}
			})
		}
	}
	group.Wait()
	t.Logf("%d grants", len(holders))
	time.Sleep(90 * time.Second) // the last check for a late request comes after 30 s
	for i, s := range stores {
		if names, err := s.List(t.Context()); err != nil || len(names) > 0 {
			q, _ := s.Inspect(t.Context(), "x")
			t.Errorf("left on store %d: %+v, %v", i+1, q, err)
		}
	}
	for _, l := range clients {
		release(t, acquire(t, l))
		if d := took(func() { _ = l.Close() }); d > 150*time.Millisecond {
			t.Errorf("Close took %v", d)
		}
	}
	for _, s := range stores {
		_ = s.Close()
	}
}

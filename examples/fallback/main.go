// Fallback: requests go on while their store is away.
//
//	go run ./examples/fallback                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/fallback    # on any store
//
// Requests are served under a lock before, during and after an outage of the store.
// Without a fallback those during the outage fail. With compose.Fallback a second
// store grants the lock meanwhile, each such grant is reported, and the first store
// grants again as soon as it is back.
//
// The two stores know nothing of each other: a program that reaches the first one and a
// program that does not can hold the lock at once. So it is for work that may be done
// twice, or whose resource checks tokens; see compose.Fallback.
package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/examples/internal/scenario"
)

const (
	servers  = 4
	requests = 5 // that each gets before, during, and after the outage
)

func main() { scenario.Main(run) }

func run(ctx context.Context, url string) (r result, err error) {
	r.without, r.with = &outcome{}, &outcome{}
	err = r.without.serve(ctx, url, func(store driver.Driver) driver.Driver { return store })
	if err != nil {
		return r, err
	}
	second := memory.New() // stands for a second server
	err = r.with.serve(ctx, url, func(store driver.Driver) driver.Driver {
		return compose.Fallback(store, second.Join()).OnDegraded(r.with.add)
	})
	return r, err
}

// outcome is what came of the requests before, during and after the outage.
type outcome struct {
	mu     sync.Mutex
	phase  int
	phases [3]tally
}

type tally struct{ served, unavailable, degraded int }

// serve has all servers serve their requests before, during and after the outage.
// Each has its own connection to the store, and its own locker, which combine makes.
func (o *outcome) serve(ctx context.Context, url string, combine func(driver.Driver) driver.Driver) error {
	var away atomic.Bool
	var lockers [servers]locker.Locker
	for i := range lockers {
		store, err := open(ctx, url, &away)
		if err != nil {
			return err
		}
		l := locker.New(combine(store))
		defer func() { _ = l.Close() }() // nothing is held any more
		lockers[i] = l
	}
	for o.phase = range o.phases {
		away.Store(o.phase == 1)
		var group sync.WaitGroup
		var errs [servers]error
		for i, l := range lockers {
			group.Go(func() { errs[i] = o.requests(ctx, l) })
		}
		group.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
	}
	return nil
}

func (o *outcome) requests(ctx context.Context, l locker.Locker) error {
	for range requests {
		err := locker.Do(ctx, l, "report", func(context.Context) error {
			o.count(func(t *tally) { t.served++ })
			return nil
		})
		switch {
		case errors.Is(err, locker.ErrUnavailable):
			o.count(func(t *tally) { t.unavailable++ })
		case err != nil:
			return err
		}
	}
	return nil
}

// add is called with every grant of the second store.
func (o *outcome) add(context.Context, compose.Degraded) {
	o.count(func(t *tally) { t.degraded++ })
}

func (o *outcome) count(f func(*tally)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(&o.phases[o.phase])
}

func (o *outcome) String() string {
	var b strings.Builder
	for i, when := range []string{"before", "during", "after"} {
		t := o.phases[i]
		fmt.Fprintf(&b, "\n  %-7s %2d served, %2d of them by the second store, %2d fail with ErrUnavailable",
			when+":", t.served, t.degraded, t.unavailable)
	}
	return b.String()
}

type result struct{ without, with *outcome }

func (r result) String() string {
	return fmt.Sprintf("%d requests before, during and after an outage of the store\nwithout a fallback:%v\nwith a fallback:%v\n%s",
		servers*requests, r.without, r.with,
		"In a partition both stores can grant the lock at once: a resource that checks tokens stays safe.")
}

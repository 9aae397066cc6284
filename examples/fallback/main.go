// Fallback: requests go on while their store is away.
//
//	go run ./examples/fallback                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/fallback    # on any store
//
// Requests are served under a lock before, during and after an outage of the store.
// Without a fallback those during the outage fail. With compose.Fallback a second
// store grants the lock meanwhile, each such grant is reported, and the first store
// grants again soon after it is back.
//
// The two stores know nothing of each other: a program that reaches the first one and a
// program that does not can hold the lock at once. So it is for work that may be done
// twice, or whose resource checks tokens; see compose.Fallback.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/driver/memory"
)

const (
	servers  = 4
	requests = 5 // that each gets before, during, and after the outage
)

// The phases of a run. Each server notices by itself, within about a second, that the
// store is back.
const (
	before = iota
	during
	until // all servers have noticed
	after
	phases
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

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

// outcome is what came of the requests in each phase.
type outcome struct {
	mu     sync.Mutex
	phase  int
	phases [phases]tally
}

type tally struct{ served, unavailable, degraded int }

// server has a connection to the store, and a locker, of its own.
type server struct {
	locker.Locker
	degraded atomic.Bool // the last grant was the second store's
}

func (s *server) observe(_ context.Context, e locker.Event) {
	if e.Kind == locker.EventAcquired {
		s.degraded.Store(e.Degraded)
	}
}

// serve has all servers serve their requests in each phase. combine makes the driver of a
// server from its store.
func (o *outcome) serve(ctx context.Context, url string, combine func(driver.Driver) driver.Driver) error {
	var away atomic.Bool
	var all [servers]server
	for i := range all {
		store, err := open(ctx, url, &away)
		if err != nil {
			return err
		}
		s := &all[i]
		s.Locker = locker.New(combine(store), locker.WithObserver(s.observe))
		defer func() { _ = s.Close() }() // nothing is held any more
	}
	for o.phase = range o.phases {
		away.Store(o.phase == during)
		var group sync.WaitGroup
		var errs [servers]error
		for i := range all {
			group.Go(func() { errs[i] = o.requests(ctx, &all[i]) })
		}
		group.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			return err
		}
	}
	return nil
}

// requests are those of one server in one phase.
func (o *outcome) requests(ctx context.Context, s *server) error {
	for n := 0; n < requests && o.phase != until || o.phase == until && s.degraded.Load(); n++ {
		if err := o.request(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (o *outcome) request(ctx context.Context, s *server) error {
	err := locker.Do(ctx, s, "report", func(context.Context) error {
		time.Sleep(10 * time.Millisecond) // the work
		o.count(func(t *tally) { t.served++ })
		return nil
	})
	if errors.Is(err, locker.ErrUnavailable) {
		o.count(func(t *tally) { t.unavailable++ })
		return nil
	}
	return err
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
	for i, when := range [phases]string{"before", "during", "until noticed", "after"} {
		t := o.phases[i]
		if t == (tally{}) {
			continue
		}
		fmt.Fprintf(&b, "\n  %-14s %2d served, %2d of them by the second store, %2d fail with ErrUnavailable",
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

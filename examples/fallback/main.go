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
// twice, or whose resource checks fencing tokens.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/driver/memory"
)

const requests = 20 // before, during and after the outage

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return r, err
	}
	store, err := driver.Open(ctx, u)
	if err != nil {
		return r, err
	}
	o := &outage{Driver: store}
	if r.without, err = serve(ctx, o, o); err != nil {
		return r, err
	}
	second := memory.New() // stands for a second server
	if store, err = driver.Open(ctx, u); err != nil {
		return r, err
	}
	o = &outage{Driver: store}
	r.with, err = serve(ctx, o, compose.Fallback(o, second))
	return r, err
}

// tally is what came of requests.
type tally struct{ served, unavailable, degraded int }

// phases are what came of those before, during and after the outage.
type phases [3]tally

// serve serves requests through d, whose store is o.
func serve(ctx context.Context, o *outage, d driver.Driver) (ps phases, err error) {
	var degraded atomic.Bool // the last grant was the second store's
	l := locker.New(d, locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventAcquired {
			degraded.Store(e.Degraded != nil)
		}
	}))
	defer l.Close()
	work := func(context.Context) error { return nil }
	for i := range ps {
		o.away.Store(i == 1)
		for i == 2 && degraded.Load() { // it is noticed within about a second that the store is back
			if err := locker.Do(ctx, l, "report", work); err != nil {
				return ps, err
			}
			time.Sleep(50 * time.Millisecond)
		}
		for range requests {
			switch err := locker.Do(ctx, l, "report", work); {
			case errors.Is(err, locker.ErrUnavailable):
				ps[i].unavailable++
				continue
			case err != nil:
				return ps, err
			}
			ps[i].served++
			if degraded.Load() {
				ps[i].degraded++
			}
		}
	}
	return ps, nil
}

// outage is a store that refuses all requests while away is true. No lock is held there when
// that begins, so nothing has to be renewed or released meanwhile.
type outage struct {
	driver.Driver
	away atomic.Bool
}

var errAway = driver.Unavailable(errors.New("connection refused"))

func (o *outage) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if o.away.Load() {
		return driver.Grant{}, driver.NoTicket(errAway)
	}
	return o.Driver.Acquire(ctx, r)
}

func (o *outage) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if o.away.Load() {
		return nil, errAway
	}
	return o.Driver.Inspect(ctx, name)
}

// Bounds are the store's: some cannot give a short lease.
func (o *outage) Bounds(ttl time.Duration) driver.Bounds { return driver.BoundsOf(o.Driver, ttl) }

type result struct{ without, with phases }

func (r result) String() string {
	text := fmt.Sprintf("%d requests each before, during and after an outage of the store", requests)
	for i, ps := range []phases{r.without, r.with} {
		text += [...]string{"\nwithout a fallback:", "\nwith a fallback:"}[i]
		for i, t := range ps {
			text += fmt.Sprintf("\n  %-7s %2d served, %2d of them by the second store, %2d fail with ErrUnavailable",
				[...]string{"before:", "during:", "after:"}[i], t.served, t.degraded, t.unavailable)
		}
	}
	return text
}

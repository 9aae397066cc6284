// Apilimit: programs share the few calls that somebody else's API allows.
//
//	go run ./examples/apilimit                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/apilimit    # on any store
//
// The API takes three calls in any half second and refuses more. Limit(3) is a
// semaphore: three programs at most call at the same time. That is enough for an
// API that counts the calls in progress, and not for this one, since a
// permit that is released goes to the next program at once. WithMinHold keeps
// each permit back for a while, and so makes the semaphore a rate limit.
package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/examples/internal/scenario"
)

const (
	programs = 9 // that call at once
	allowed  = 3 // calls in any window
	window   = 500 * time.Millisecond
	// A permit is kept for longer than the window, by as much as a call may be
	// late on its way to the API.
	hold = 2 * window
)

func main() { scenario.Main(run) }

func run(ctx context.Context, url string) (r result, err error) {
	r = result{&api{}, &api{}, &api{}}
	err = scenario.Workers(ctx, url, programs, func(int, locker.Locker) error {
		r.without.call()
		return nil
	})
	if err != nil {
		return r, err
	}
	err = scenario.Workers(ctx, url, programs, func(_ int, l locker.Locker) error {
		return locker.Do(ctx, l, "api:calls", func(context.Context) error {
			r.limit.call()
			return nil
		}, locker.Limit(allowed))
	})
	if err != nil {
		return r, err
	}
	err = scenario.Workers(ctx, url, programs, func(_ int, l locker.Locker) error {
		return locker.Do(ctx, l, "api:rate", func(context.Context) error {
			r.rate.call()
			return nil
		}, locker.Limit(allowed), locker.WithMinHold(hold))
	})
	return r, err
}

// api is somebody else's.
type api struct {
	mu       sync.Mutex
	accepted []time.Time
	refused  int
	calls    int // in progress
	most     int // in progress at the same time
}

func (a *api) call() {
	a.begin()
	time.Sleep(10 * time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls--
}

func (a *api) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	a.most = max(a.most, a.calls)
	n := len(a.accepted)
	if n >= allowed && time.Since(a.accepted[n-allowed]) < window {
		a.refused++
		return
	}
	a.accepted = append(a.accepted, time.Now())
}

type result struct{ without, limit, rate *api }

func (r result) String() string {
	return fmt.Sprintf("%d calls of an API that takes %d in %v\nwithout a lock:        %v\nLimit:                 %v\nLimit and WithMinHold: %v",
		programs, allowed, window, r.without, r.limit, r.rate)
}

func (a *api) String() string {
	return fmt.Sprintf("%d accepted, %d refused, at most %d at the same time", len(a.accepted), a.refused, a.most)
}

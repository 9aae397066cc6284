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
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const (
	programs = 9 // that call at once
	allowed  = 3 // calls in any window
	window   = 500 * time.Millisecond
	// A permit is kept for longer than the window, by as much as a call may be
	// late on its way to the API.
	hold = 2 * window
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	r = result{&api{}, &api{}, &api{}}
	var group errgroup.Group
	for range programs {
		group.Go(func() error { return r.program(ctx, url) })
	}
	err = group.Wait()
	return r, err
}

// program calls the API three times: without a lock, under a semaphore, under a rate limit.
func (r result) program(ctx context.Context, url string) error {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	r.without.call()
	err = locker.Do(ctx, l, "api:calls", func(context.Context) error {
		r.limit.call()
		return nil
	}, locker.Limit(allowed))
	if err != nil {
		return err
	}
	return locker.Do(ctx, l, "api:rate", func(context.Context) error {
		r.rate.call()
		return nil
	}, locker.Limit(allowed), locker.WithMinHold(hold))
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

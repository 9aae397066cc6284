// Schedule: a job that every instance starts runs once in each period.
//
//	go run ./examples/schedule                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/schedule    # on any store
//
// Each instance starts the job when its own clock says so, and the clocks
// differ by more than the job takes. A lock that is released when the job is
// done is free again before the slow clocks get there, and the job runs again.
// WithMinHold keeps the lock for most of the period, even if its holder dies, or
// exits as soon as the job is done, as a process does that cron has started.
package main

import (
	"cmp"
	"context"
	"errors"
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
	instances = 5
	periods   = 2
	period    = 4 * time.Second
	skew      = period / 40 // between the clocks of one instance and the next

	// Longer than the clocks differ, and short enough to end before the next
	// period begins by the fastest of them.
	hold = period * 6 / 10
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	r = result{&runs{}, &runs{}, &runs{}}
	begin := time.Now().Add(period / 2)
	var group errgroup.Group
	for i := range instances {
		clock := func() time.Time { return time.Now().Add(time.Duration(i) * skew) }
		group.Go(func() error { return r.instance(ctx, url, begin, clock) })
	}
	err = group.Wait()
	return r, err
}

// instance starts the job in each period, by its own clock.
func (r result) instance(ctx context.Context, url string, begin time.Time, clock func() time.Time) error {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	for p := range periods {
		time.Sleep(begin.Add(time.Duration(p) * period).Sub(clock()))
		r.without.job(p)
		err := errors.Join(
			once(ctx, l, "report:released", func() { r.released.job(p) }),
			once(ctx, l, "report", func() { r.with.job(p) }, locker.WithMinHold(hold)),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// once runs job, unless another instance has the lock.
func once(ctx context.Context, l locker.Locker, name string, job func(), opts ...locker.Option) (err error) {
	k, err := l.TryAcquire(ctx, name, opts...)
	if errors.Is(err, locker.ErrNotAcquired) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Release(ctx)) }()
	job()
	return nil
}

// runs counts how often the job runs in each period.
type runs struct {
	mu sync.Mutex
	in [periods]int
}

func (r *runs) job(p int) {
	time.Sleep(5 * time.Millisecond)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.in[p]++
}

type result struct{ without, released, with *runs }

func (r result) String() string {
	return fmt.Sprintf("%d instances, %d periods of %v: how often the job runs in each\nwithout a lock:           %v\nlock released at its end: %v\nlock with WithMinHold:    %v",
		instances, periods, period, r.without.in, r.released.in, r.with.in)
}

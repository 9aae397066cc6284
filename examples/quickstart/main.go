// Quickstart: workers sell a stock without overselling it.
//
//	go run ./examples/quickstart                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/quickstart    # on any store
//
// It sells the stock twice: first without a lock, to show what goes wrong, then with one. Each
// worker has a Locker of its own, as another process would. Stop the store meanwhile, and start
// it again: the workers say that they cannot reach it, sell nothing, and go on.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/driver/redis"
)

const (
	items   = 200
	workers = 8
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	redis.LogTo(nil) // the Redis client would print every failed connection
	if err := run(ctx, cmp.Or(os.Getenv("LOCKER_URL"), "memory://")); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string) error {
	without, with := &shop{stock: items}, &shop{stock: items}
	err := atOnce(func() error {
		for more := true; more; more, _ = without.sell(0) {
		}
		return nil
	})
	fmt.Printf("without a lock: %d items, %d workers, %d sold\n", items, workers, without.sold)
	if err == nil {
		err = atOnce(func() error { return sellLocked(ctx, url, with) })
	}
	fmt.Printf("with the lock:  %d items, %d workers, %d sold\n", items, workers, with.sold)
	if err == nil && with.sold != items {
		err = errors.New("sold another number than there was, under the lock")
	}
	return err
}

// sellLocked sells under the lock until nothing is left, and goes on after an outage.
func sellLocked(ctx context.Context, url string, s *shop) error {
	l, err := locker.Open(ctx, url, locker.WithDefaults(locker.WithTTL(5*time.Second)))
	if err != nil {
		return err
	}
	defer l.Close()
	for more, trouble := true, false; more; {
		err := locker.Do(ctx, l, "stock", func(ctx context.Context) (err error) {
			lock, _ := locker.FromContext(ctx)
			more, err = s.sell(lock.Token())
			return err
		})
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil: // the store is away, or the lock was lost: what was sold is sold
			if !trouble {
				fmt.Println(err, "(will try again)")
			}
			time.Sleep(200 * time.Millisecond)
		}
		trouble = err != nil
	}
	return nil
}

// shop is what the lock protects: a stock that is read, and written some time later, as in a
// database without transactions. It refuses a token that is smaller than one it has seen: that
// is the token of a worker which has lost the lock, and has not noticed it yet.
type shop struct {
	mu          sync.Mutex
	stock, sold int
	fence       uint64 // the greatest token seen
}

// sell sells one item if there is one.
func (s *shop) sell(token uint64) (more bool, err error) {
	left := 0
	if err := s.with(token, func() { left = s.stock }); err != nil || left == 0 {
		return err != nil, err
	}
	time.Sleep(time.Millisecond) // charge the card
	return true, s.with(token, func() { s.stock, s.sold = left-1, s.sold+1 })
}

// with is one access to the database.
func (s *shop) with(token uint64, do func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.fence {
		return fmt.Errorf("token %d comes after %d: not sold", token, s.fence)
	}
	s.fence = token
	do()
	return nil
}

// atOnce runs work in all workers at the same time.
func atOnce(work func() error) error {
	var group errgroup.Group
	for range workers {
		group.Go(work)
	}
	return group.Wait()
}

// Quickstart: several workers sell from one stock without overselling it.
//
//	go run ./examples/quickstart                                          # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/quickstart        # on any store
//
// It sells everything twice: first without a lock, to show what goes wrong,
// then with one. Every worker opens a Locker of its own, as if it were another
// process. Stop the store while it runs, and start it again: the workers say
// that they cannot reach it, sell nothing meanwhile, and go on.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

func main() {
	items := flag.Int("items", 200, "items in stock")
	workers := flag.Int("workers", 8, "workers that sell them")
	limit := flag.Duration("limit", 2*time.Minute, "give up after this time")
	flag.Parse()
	url := os.Getenv("LOCKER_URL")
	if url == "" {
		url = "memory://"
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	if err := run(ctx, url, *items, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, url string, items, workers int) error {
	open := newShop(items)
	begun := time.Now()
	if err := sellOut(ctx, open, workers, func(int) seller { return unlocked{} }); err != nil {
		return err
	}
	open.report("without a lock", workers, time.Since(begun))

	lockers := make([]*locker.Client, workers)
	for i := range lockers {
		l, err := locker.Open(ctx, url, locker.WithDefaults(locker.WithTTL(5*time.Second)))
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }() // nothing is held any more
		lockers[i] = l
	}
	locked := newShop(items)
	begun = time.Now()
	err := sellOut(ctx, locked, workers, func(i int) seller { return &careful{l: lockers[i], id: i} })
	locked.report("with the lock ", workers, time.Since(begun))
	if err == nil && locked.oversold() > 0 {
		err = errors.New("oversold under the lock")
	}
	return err
}

// sellOut lets the workers sell until the stock is empty.
func sellOut(ctx context.Context, s *shop, workers int, hire func(i int) seller) error {
	var group sync.WaitGroup
	errs := make([]error, workers)
	for i := range workers {
		w := hire(i)
		group.Go(func() {
			for more := true; more && errs[i] == nil; {
				more, errs[i] = w.sell(ctx, s)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// A seller sells one item; more is false when there is none left.
type seller interface {
	sell(ctx context.Context, s *shop) (more bool, err error)
}

// unlocked sells without a lock.
type unlocked struct{}

func (unlocked) sell(_ context.Context, s *shop) (bool, error) {
	return s.sellOne(0)
}

// careful sells under the lock, and hands the fencing token to the shop.
type careful struct {
	l       *locker.Client
	id      int
	trouble bool
}

func (w *careful) sell(ctx context.Context, s *shop) (more bool, err error) {
	k, err := w.l.Acquire(ctx, "stock")
	if err != nil {
		return true, w.tryAgain(ctx, err)
	}
	w.recovered()
	more, err = s.sellOne(k.Token())
	// A lost lock or a store that is away is no reason to stop: what was
	// sold is sold, and a lock that was not released ends by itself.
	if err := errors.Join(err, k.Release(ctx)); err != nil {
		return more, w.tryAgain(ctx, err)
	}
	return more, nil
}

// tryAgain says what is wrong, once, and waits a moment.
func (w *careful) tryAgain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("worker %d: %w", w.id, err)
	}
	if !w.trouble {
		w.trouble = true
		fmt.Printf("worker %d: %v; trying again\n", w.id, err)
	}
	select {
	case <-time.After(200 * time.Millisecond):
	case <-ctx.Done():
	}
	return nil
}

func (w *careful) recovered() {
	if w.trouble {
		w.trouble = false
		fmt.Printf("worker %d: the store is back\n", w.id)
	}
}

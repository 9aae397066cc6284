// Package scenario is what the programs in examples have in common: where the
// store is, and workers that run at the same time.
package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lockerproject/locker"
)

// Main runs a program on the store that LOCKER_URL names, or on memory, and
// prints what comes out.
func Main[R any](run func(ctx context.Context, url string) (R, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	result, err := run(ctx, cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(result)
}

// Workers runs work(0) … work(n-1) at the same time, and returns their errors.
// Each has a Locker of its own, as if it were another process.
func Workers(ctx context.Context, url string, n int, work func(i int, l locker.Locker) error) error {
	lockers := make([]locker.Locker, n)
	for i := range lockers {
		l, err := locker.Open(ctx, url)
		if err != nil {
			return err
		}
		defer func() { _ = l.Close() }() // nothing is held any more
		lockers[i] = l
	}
	var group sync.WaitGroup
	errs := make([]error, n)
	for i, l := range lockers {
		group.Go(func() { errs[i] = work(i, l) })
	}
	group.Wait()
	return errors.Join(errs...)
}

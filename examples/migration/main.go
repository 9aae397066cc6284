// Migration: programs move from one store to another while they run.
//
//	go run ./examples/migration                                              # between two spaces in memory
//	LOCKER_URL=redis://old:6379 LOCKER_URL2=redis://new:6379 go run ./examples/migration
//
// The programs are replaced one after the other, and go on working meanwhile. If they go
// straight from the old store to the new one, those on the old store know nothing
// of those on the new one, and both hold the lock. By the four steps of package
// compose, programs that run at the same time always have a store in common.
//
// The resource checks tokens. While programs of the second and the third step run
// side by side, it refuses those of the second what a program of the third has written
// to: they have to try again once they are replaced.
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

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const (
	programs = 4
	uses     = 2 // of the resource by each program, after each replacement

	// base is greater than all tokens of the old store, if that counts or has the
	// microseconds of a clock; see compose.TokenBase.
	base = 1 << 52
)

func main() {
	old, next := cmp.Or(os.Getenv("LOCKER_URL"), "memory://"), cmp.Or(os.Getenv("LOCKER_URL2"), "memory://new")
	r, err := run(context.Background(), old, next)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, old, next string) (r result, err error) {
	r.straight, err = move(ctx, old, next)
	if err != nil {
		return r, err
	}
	r.bySteps, err = move(ctx,
		old,
		fmt.Sprintf("all://(%s)(%s)?authority=0", old, next),
		fmt.Sprintf("all://(%s)(tokenbase://(%s)?n=%d)?authority=1", old, next, base),
		fmt.Sprintf("tokenbase://(%s)?n=%d", next, base))
	return r, err
}

// move starts the programs on the first URL and brings them to the last, step by
// step, one program at a time. After each replacement all of them work.
func move(ctx context.Context, urls ...string) (*ledger, error) {
	book := newLedger(len(urls))
	var running [programs]program
	defer func() {
		for _, p := range running {
			p.stop()
		}
	}()
	for step, url := range urls {
		for i := range running {
			running[i].stop()
			l, err := locker.Open(ctx, url)
			if err != nil {
				return book, err
			}
			running[i] = program{l, step}
			if err := work(ctx, running[:], book); err != nil {
				return book, err
			}
		}
	}
	return book, nil
}

// work has all programs that run use the resource at the same time.
func work(ctx context.Context, running []program, book *ledger) error {
	var group sync.WaitGroup
	errs := make([]error, len(running))
	for i, p := range running {
		if p.locker != nil {
			group.Go(func() { errs[i] = p.work(ctx, book) })
		}
	}
	group.Wait()
	return errors.Join(errs...)
}

// program is one that has been configured for a step.
type program struct {
	locker locker.Locker
	step   int
}

func (p program) work(ctx context.Context, book *ledger) error {
	for range uses {
		k, err := p.locker.Acquire(ctx, "ledger")
		if err != nil {
			return err
		}
		book.write(p.step, k.Token())
		if err := k.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p program) stop() {
	if p.locker != nil {
		_ = p.locker.Close() // nothing is held any more
	}
}

type result struct{ straight, bySteps *ledger }

func (r result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d programs move to another store, one at a time\n", programs)
	fmt.Fprintf(&b, "straight: %v\nby steps: %v", r.straight, r.bySteps)
	for i, s := range r.bySteps.steps {
		fmt.Fprintf(&b, "\n  step %d: %2d writes, tokens %d to %d, %d refused", i+1, s.writes, s.least, s.greatest, s.refused)
	}
	return b.String()
}

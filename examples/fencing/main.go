// Fencing: a holder stands still past its lease, and writes when it goes on.
//
//	go run ./examples/fencing                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/fencing    # on any store
//
// Two workers, each with a Locker of its own, take the lock, read a stock of 10 items and
// write one item less. The first, A, stands still as soon as it has read, as a process does
// that is stopped or swapped out, until its lease has ended and B has the lock. It could ask
// the lock before it writes, and stand still a moment later. The program has them do so three
// times: without a guard, with a guard that compares tokens at the write alone, and with one
// that the read raises too.
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
	"github.com/lockerproject/locker/fence"
)

const (
	stock = 10
	ttl   = time.Second
)

// guarding is what the shop guards.
type guarding int

const (
	nothing guarding = iota
	writes
	everything
)

func (g guarding) String() string {
	return [...]string{"without a guard", "comparing at the write only", "raised by the read, too"}[g]
}

func main() {
	text, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	fmt.Print(text)
	if err != nil {
		log.Fatal(err)
	}
}

// run shows the three ways.
func run(ctx context.Context, url string) (text string, err error) {
	for _, g := range []guarding{nothing, writes, everything} {
		s := &shop{guards: g, items: stock}
		a, b, err := s.workers(ctx, url)
		if err != nil {
			return text, fmt.Errorf("%v: %w", g, err)
		}
		verdict := "right"
		if want := stock - s.sold; s.items != want {
			verdict = fmt.Sprintf("WRONG, want %d", want)
		}
		text += fmt.Sprintf("%-28s A: %s; B: %s; sold %d of %d, left %d: %s\n", g.String()+":", a, b, s.sold, stock, s.items, verdict)
		if g == everything && verdict != "right" {
			return text, errors.New("the guard did not hold")
		}
	}
	return text, nil
}

// shop is what the lock protects.
type shop struct {
	guards guarding
	guard  fence.Guard

	mu          sync.Mutex
	items, sold int
}

// workers runs A and B. When B has the lock and has read, A goes on, and B when A is done.
func (s *shop) workers(ctx context.Context, url string) (a, b string, err error) {
	readA, readB, doneA := make(chan struct{}), make(chan struct{}), make(chan struct{})
	group, ctx := errgroup.WithContext(ctx)
	wait := func(c <-chan struct{}) {
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
	group.Go(func() (err error) {
		defer close(doneA)
		a, err = s.work(ctx, url, func() { close(readA); wait(readB) })
		return err
	})
	group.Go(func() (err error) {
		wait(readA)
		b, err = s.work(ctx, url, func() { close(readB); wait(doneA) })
		return err
	})
	err = group.Wait() // before a and b are read
	return a, b, err
}

// work is what a worker does, and how that ended.
func (s *shop) work(ctx context.Context, url string, standStill func()) (outcome string, err error) {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return "", err
	}
	defer l.Close()
	lock, err := l.Acquire(ctx, "stock", locker.WithTTL(ttl), locker.WithoutRenewal()) // who stands still renews nothing
	if err != nil {
		return "", err
	}
	defer func() { _ = lock.Release(ctx) }() // A has lost it
	var left int
	if err := s.do(lock, everything, func() { left = s.items }); err != nil {
		return "", err
	}
	standStill()
	err = s.do(lock, writes, func() { s.items, s.sold = left-1, s.sold+1 })
	if errors.Is(err, fence.ErrStale) {
		return "refused, its token is stale", nil
	}
	return fmt.Sprintf("wrote %d", left-1), err
}

// do runs one operation at a time, behind the guard if the shop guards such operations.
func (s *shop) do(lock fence.Lock, op guarding, f func()) error {
	alone := func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		f()
		return nil
	}
	if s.guards < op {
		return alone()
	}
	return s.guard.Do(lock, alone)
}

// Ordernumbers: clerks give every order the next number.
//
//	go run ./examples/ordernumbers                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/ordernumbers    # on any store
//
// The last number is read, and the next one written a moment later: as in a
// file, a spreadsheet, or a table of another system. Two clerks who read the
// same number give it twice. Under the lock reading and writing are one step.
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
	clerks = 8
	orders = 10 // that each clerk enters
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	r.without, r.with = newBook(), newBook()
	var group errgroup.Group
	for range clerks {
		group.Go(func() error { return r.clerk(ctx, url) })
	}
	err = group.Wait()
	return r, err
}

// clerk enters orders, without a lock and then with it. Each clerk has a Locker of their own, as
// in a program of their own.
func (r result) clerk(ctx context.Context, url string) error {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	for range orders {
		r.without.enter()
	}
	for range orders {
		err := locker.Do(ctx, l, "ordernumbers", func(context.Context) error {
			r.with.enter()
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// book is the book of orders.
type book struct {
	mu     sync.Mutex
	last   int         // the number of the last order
	orders map[int]int // how many orders have a number
}

func newBook() *book { return &book{orders: make(map[int]int)} }

func (b *book) enter() {
	number := b.read() + 1
	time.Sleep(time.Millisecond) // what a round trip takes
	b.write(number)
}

func (b *book) read() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last
}

func (b *book) write(number int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = number
	b.orders[number]++
}

type result struct{ without, with *book }

func (r result) String() string {
	return fmt.Sprintf("%d orders\nwithout a lock: %d different numbers\nwith the lock:  %d different numbers, the last is %d",
		clerks*orders, len(r.without.orders), len(r.with.orders), r.with.last)
}

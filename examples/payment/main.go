// Payment: a payment that is requested several times is made once.
//
//	go run ./examples/payment                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/payment    # on any store
//
// Customers click again, and programs retry after a timeout, so each payment
// has a key, and a request whose key has a receipt gets that receipt. Two
// requests at the same time both find none, and both charge the card. Under a
// lock on the key the second finds the receipt of the first.
//
// The lock cannot help when the process dies, or is paused past its lease,
// between the charge and the receipt. So give the key to the payment
// provider too, if it takes one.
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
	payments = 5
	requests = 4 // for each payment
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	r.without, r.with = newTill(), newTill()
	var group errgroup.Group
	for i := range payments * requests {
		group.Go(func() error { return r.request(ctx, url, fmt.Sprint("payment:", i%payments)) })
	}
	err = group.Wait()
	return r, err
}

// request makes a payment, without a lock and then with it. Each request has a Locker of its own,
// as in another process.
func (r result) request(ctx context.Context, url, key string) error {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	r.without.pay(key)
	return locker.Do(ctx, l, key, func(context.Context) error {
		r.with.pay(key)
		return nil
	}, locker.WithWait(10*time.Second)) // then ask the customer to come back
}

// till charges cards and keeps the receipts.
type till struct {
	mu       sync.Mutex
	receipts map[string]int // by the key of the payment
	answers  map[answer]bool
	charges  int
}

// answer is what a request got.
type answer struct {
	key     string
	receipt int
}

func newTill() *till {
	return &till{receipts: make(map[string]int), answers: make(map[answer]bool)}
}

func (t *till) pay(key string) {
	receipt, paid := t.find(key)
	if !paid {
		receipt = t.charge()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.receipts[key] = receipt
	t.answers[answer{key, receipt}] = true
}

func (t *till) find(key string) (receipt int, paid bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	receipt, paid = t.receipts[key]
	return receipt, paid
}

func (t *till) charge() (receipt int) {
	time.Sleep(5 * time.Millisecond) // the payment provider takes its time
	t.mu.Lock()
	defer t.mu.Unlock()
	t.charges++
	return t.charges
}

type result struct{ without, with *till }

func (r result) String() string {
	return fmt.Sprintf("%d payments, each requested %d times\nwithout a lock: %d charges, %d receipts\nwith the lock:  %d charges, %d receipts",
		payments, requests, r.without.charges, len(r.without.answers), r.with.charges, len(r.with.answers))
}

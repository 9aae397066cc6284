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
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/examples/internal/scenario"
)

const (
	payments = 5
	requests = 4 // for each payment
)

func main() { scenario.Main(run) }

func run(ctx context.Context, url string) (r result, err error) {
	r.without, r.with = newTill(), newTill()
	err = scenario.Workers(ctx, url, payments*requests, func(i int, l locker.Locker) error {
		key := fmt.Sprint("payment:", i%payments)
		r.without.pay(key)
		return locker.Do(ctx, l, key, func(context.Context) error {
			r.with.pay(key)
			return nil
		}, locker.WithWait(10*time.Second)) // then ask the customer to come back
	})
	return r, err
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

// Transfer: customers pay a shop, and the shop pays back, under the locks of
// both accounts.
//
//	go run ./examples/transfer                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/transfer    # on any store
//
// A transfer reads two balances and writes two. Without a lock transfers
// overwrite each other, and money appears or is gone. With a lock on each account,
// taken as the transfer names them, a payment and a refund each hold one and wait
// for the other until they give up. AcquireAll takes both or none, in an order that
// is the same for everybody.
//
// The locks keep others out; they do not make two writes one. Where a process
// may die between them, write both in one transaction.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const (
	customers = 4
	payers    = 6 // who make payments
	refunders = 2 // who make refunds
	transfers = 3 // that each makes
	money     = (1 + customers) * 1000
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	for i, locked := range []way{unlocked, oneByOne, together} {
		b := newBank()
		r[i] = b
		var group errgroup.Group
		for i := range payers + refunders {
			from, to := customer(i), "shop"
			if i >= payers {
				from, to = to, from
			}
			group.Go(func() error { return pay(ctx, url, b, locked, from, to) })
		}
		if err := group.Wait(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// pay makes some transfers, with a Locker of its own, as another process would.
func pay(ctx context.Context, url string, b *bank, locked way, from, to string) error {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	for range transfers {
		err := locked(ctx, l, from, to, func() { b.transfer(from, to, 10) })
		switch {
		case errors.Is(err, locker.ErrUnavailable): // it may be ErrNotAcquired as well
			return err
		case errors.Is(err, locker.ErrNotAcquired): // somebody else has an account for too long: this transfer is given up
		case err != nil:
			return err
		}
	}
	return nil
}

// A way runs f for a transfer between two accounts, unless it has to give up.
type way func(ctx context.Context, l locker.Locker, from, to string, f func()) error

func unlocked(_ context.Context, _ locker.Locker, _, _ string, f func()) error {
	f()
	return nil
}

// oneByOne is wrong: it takes the accounts in the order in which they are named.
func oneByOne(ctx context.Context, l locker.Locker, from, to string, f func()) error {
	return locker.Do(ctx, l, from, func(ctx context.Context) error {
		time.Sleep(5 * time.Millisecond) // is there enough on the account?
		return locker.Do(ctx, l, to, func(context.Context) error {
			f()
			return nil
		}, locker.WithWait(500*time.Millisecond))
	})
}

func together(ctx context.Context, l locker.Locker, from, to string, f func()) (err error) {
	k, err := locker.AcquireAll(ctx, l, []string{from, to})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Release(ctx)) }()
	time.Sleep(5 * time.Millisecond) // is there enough on the account?
	f()
	return nil
}

func customer(i int) string { return fmt.Sprint("customer:", i%customers) }

type result [3]*bank // without a lock, with one after the other, with both

func (r result) String() string {
	return fmt.Sprintf("%d transfers between accounts that hold %d\nwithout a lock:           %v\none lock, then the next:  %v\nAcquireAll:               %v",
		(payers+refunders)*transfers, money, r[0], r[1], r[2])
}

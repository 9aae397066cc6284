// Stock: several shops sell from one stock, and sell no piece twice.
//
//	go run ./examples/stock                                            # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/stock          # on any store
//	LOCKER_URL=postgres://localhost:5432/test go run ./examples/stock  # with fencing, too
//
// A sale reads what is left, and writes one less a moment later. Without a lock
// two shops read the same number and sell the same piece. Under one lock they sell
// one after the other. With a stock in segments, each under a lock of its own,
// they sell at the same time, and whoever finds a segment empty goes on to another.
//
// A lock does not stop a shop that was paused past its lease. On PostgreSQL the
// last part guards the row by the tokens of the lock: such a shop is refused.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/stripe"
)

const (
	shops     = 8
	customers = 10 // of each shop, who want one piece
	pieces    = 60
	segments  = 4
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	name := "stock:" + rand.Text() // each run of this program has a stock of its own
	r.without, r.one, r.striped = newShelf(1), newShelf(1), newShelf(segments)
	var group errgroup.Group
	for range shops {
		group.Go(func() error { return r.shop(ctx, url, name) })
	}
	err = group.Wait()
	if err == nil && onPostgres(url) {
		r.fenced, err = sellFenced(ctx, url, name)
	}
	return r, err
}

// shop sells to its customers: without a lock, under one, and from segments. Each shop has a
// Locker of its own, as in another process.
func (r result) shop(ctx context.Context, url, name string) error {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return err
	}
	defer l.Close()
	stock, err := stripe.NewSegments(l, name, segments)
	if err != nil {
		return err
	}
	return errors.Join(
		serve(func() error { return r.without.sell(0) }),
		serve(func() error {
			return locker.Do(ctx, l, name, func(context.Context) error { return r.one.sell(0) })
		}),
		serve(func() error {
			return stock.Do(ctx, func(_ context.Context, segment int) error { return r.striped.sell(segment) })
		}),
	)
}

// serve sells a piece to each customer of a shop, as long as there are any.
func serve(sell func() error) error {
	for range customers {
		if err := sell(); err != nil && !errors.Is(err, stripe.ErrEmpty) {
			return err
		}
	}
	return nil
}

func onPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

type result struct {
	without, one, striped *shelf
	fenced                *fenced // nil if the store is not PostgreSQL
}

func (r result) String() string {
	fenced := "left out, it needs a postgres:// URL"
	if r.fenced != nil {
		fenced = r.fenced.String()
	}
	return fmt.Sprintf("%d pieces, %d customers\nwithout a lock: %v\none lock:       %v\n%d segments:     %v\nfencing:        %s",
		pieces, shops*customers, r.without, r.one, segments, r.striped, fenced)
}

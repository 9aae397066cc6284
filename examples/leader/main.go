// Leader: several programs could do a job, one does it, and when that one ends
// another takes over.
//
//	go run ./examples/leader                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/leader    # on any store
//
// Each candidate has a Locker of its own, as another process would. The leader's is
// closed here, which gives the lock back, and a standby is elected at once. After a
// SIGKILL a standby is elected when the leader's lease has ended in the store, which takes
// at most the Crash of the driver's Bounds: about the TTL on some stores, longer on others.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
	"github.com/lockerproject/locker/election"
)

const (
	candidates = 3
	ttl        = 2 * time.Second
)

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

// run starts the candidates, and ends each when it has been elected.
func run(ctx context.Context, url string) (r result, err error) {
	name := "leader:" + rand.Text() // each run of this program is an election of its own
	lockers := make([]*locker.Client, candidates)
	for i := range lockers {
		if lockers[i], err = locker.Open(ctx, url); err != nil {
			return nil, err
		}
		defer lockers[i].Close()
	}
	elected := make(chan lead)
	group, ctx := errgroup.WithContext(ctx)
	for i, l := range lockers {
		group.Go(func() error { return campaign(ctx, l, name, i, elected) })
	}
	group.Go(func() error {
		for range lockers {
			select {
			case e := <-elected:
				r = append(r, e)
				time.Sleep(ttl / 10)
				_ = lockers[e.who].Close() // the end of this program
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	err = group.Wait()
	return r, err
}

// campaign is what each program does.
func campaign(ctx context.Context, l locker.Locker, name string, who int, elected chan<- lead) error {
	e, err := election.New(l, name, election.WithTTL(ttl))
	if err != nil {
		return err
	}
	err = e.Run(ctx, func(ctx context.Context, term *election.Term) error {
		select {
		case elected <- lead{who, term.Token()}:
		case <-ctx.Done():
		}
		<-ctx.Done() // the job, for as long as it leads
		return nil
	})
	if errors.Is(err, locker.ErrClosed) {
		return nil
	}
	return err
}

// lead is one term of a candidate.
type lead struct {
	who   int
	token uint64
}

type result []lead

func (r result) String() string {
	text := fmt.Sprintf("%d candidates; each that is elected ends", candidates)
	for _, e := range r {
		text += fmt.Sprintf("\ncandidate %c leads, token %d", 'A'+e.who, e.token)
	}
	return text
}

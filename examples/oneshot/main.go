// Oneshot: a job that cron starts on several machines, in processes that exit
// at once, runs on one of them.
//
//	go run ./examples/oneshot                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/oneshot    # on any store
//
// The processes come one after the other, since no two machines start one at
// the same moment. Without a minimum hold each finds the lock free, because the
// one before has closed its Locker. WithMinHold leaves the lock to its lease: it
// outlives the process that took it.
//
// Each is a Locker of its own here, which is closed before the next one is opened, as a
// process closes it that exits.
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

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const machines = 3

func main() {
	r, err := run(context.Background(), cmp.Or(os.Getenv("LOCKER_URL"), "memory://"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(r)
}

func run(ctx context.Context, url string) (r result, err error) {
	day := rand.Text() // each run of this program is a day of its own
	for way, t := range []task{
		{},
		{lock: "report:released:" + day},
		{lock: "report:" + day, hold: time.Minute}, // less than a day, more than the clocks differ
	} {
		for range machines {
			ran, err := t.run(ctx, url)
			if err != nil {
				return r, err
			}
			if ran {
				r[way]++
			}
		}
	}
	return r, nil
}

// task is what cron starts on every machine.
type task struct {
	lock string // none if it is empty
	hold time.Duration
}

// run is all that one process does. It reports whether the job ran.
func (t task) run(ctx context.Context, url string) (ran bool, err error) {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, l.Close()) }() // releases the lock
	if t.lock != "" {
		_, err = l.TryAcquire(ctx, t.lock, locker.WithMinHold(t.hold))
	}
	if errors.Is(err, locker.ErrNotAcquired) {
		return false, nil
	}
	return err == nil, err // after the work, which is short
}

type result [3]int // how often the job has run, by the way it is locked

func (r result) String() string {
	return fmt.Sprintf("%d machines: how often the job runs\nwithout a lock:        %d\nlock until Close:      %d\nlock with WithMinHold: %d",
		machines, r[0], r[1], r[2])
}

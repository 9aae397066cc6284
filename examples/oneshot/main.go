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
// On a store each is a process of its own: this program starts itself. Memory
// is not shared by processes, so there each is a Locker of its own.
package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const machines = 3

func main() {
	if child() {
		return
	}
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
		start := t.start
		if strings.HasPrefix(url, "memory:") {
			start = t.run
		}
		for range machines {
			said, err := start(ctx, url)
			if err != nil {
				return r, err
			}
			if said == ran {
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

const ran, skipped = "ran", "skipped"

// run is all that one process does.
func (t task) run(ctx context.Context, url string) (said string, err error) {
	l, err := locker.Open(ctx, url)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, l.Close()) }() // releases the lock
	if t.lock != "" {
		_, err = l.TryAcquire(ctx, t.lock, locker.WithMinHold(t.hold))
	}
	switch {
	case errors.Is(err, locker.ErrNotAcquired):
		return skipped, nil
	case err != nil:
		return "", err
	}
	return ran, nil // after the work, which is short
}

// start runs the task in another process of this program.
func (t task) start(ctx context.Context, url string) (said string, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(ctx, program)
	c.Env = append(os.Environ(), "LOCKER_URL="+url, "ONESHOT_HOLD="+t.hold.String(), "ONESHOT_LOCK="+t.lock)
	c.Stderr = os.Stderr
	out, err := c.Output()
	return strings.TrimSpace(string(out)), err
}

// child runs the task that start has set, if this process is of its making.
func child() bool {
	hold, err := time.ParseDuration(os.Getenv("ONESHOT_HOLD"))
	if err != nil {
		return false
	}
	said, err := task{lock: os.Getenv("ONESHOT_LOCK"), hold: hold}.run(context.Background(), os.Getenv("LOCKER_URL"))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(said)
	return true
}

type result [3]int // how often the job has run, by the way it is locked

func (r result) String() string {
	return fmt.Sprintf("%d machines: how often the job runs\nwithout a lock:        %d\nlock until Close:      %d\nlock with WithMinHold: %d",
		machines, r[0], r[1], r[2])
}

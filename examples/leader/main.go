// Leader: two processes could do a job, one does it, and when that one is killed
// the other takes over.
//
//	go run ./examples/leader                                      # in memory
//	LOCKER_URL=redis://localhost:6379 go run ./examples/leader    # on any store
//
// Without an election both do the job. With one the other is a standby: it waits
// in the queue, and is elected when the lease of the leader ends, at most its
// TTL after SIGKILL.
//
// On a store each candidate is a process of its own: this program starts itself.
// Memory is not shared by processes, so there each is a Locker of its own, and
// what kills it is Close: that gives the lock back, and the standby need not wait
// for the lease.
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
	"sync"
	"time"

	_ "github.com/lockerproject/locker/driver/all" // any store, by URL
)

const (
	ttl  = 2 * time.Second
	tick = 100 * time.Millisecond // from one time that the job is done to the next
	jobs = 5                      // that each does, at least
)

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
	r.start, r.kill = startProcess, "SIGKILL"
	if strings.HasPrefix(url, "memory:") {
		r.start, r.kill = startHere, "Close: memory lives in one process"
	}
	if r.without, err = try(ctx, r.start, candidate{url: url}); err != nil {
		return r, err
	}
	r.with, err = try(ctx, r.start, candidate{url: url, election: "leader:" + rand.Text()})
	return r, err
}

// A starter starts a candidate that ends with ctx or when it is killed, and is to
// be waited for. It calls did whenever the job was done.
type starter func(ctx context.Context, c candidate, did func(at time.Time)) (kill func() error, wait func(), err error)

// event says that a candidate has done the job, or that it has ended.
type event struct {
	who   int
	at    time.Time
	ended bool
}

// try starts two candidates, kills the first that does the job, and sees the other
// do it.
func try(ctx context.Context, start starter, c candidate) (h history, err error) {
	h.began, h.first = time.Now(), -1
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	events := make(chan event)
	say := func(e event) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}
	var kill [2]func() error
	for who := range kill {
		k, wait, err := start(ctx, c, func(at time.Time) { say(event{who: who, at: at}) })
		if err != nil {
			return h, err
		}
		kill[who] = k
		group.Go(func() { wait(); say(event{who: who, ended: true}) })
	}
	for !h.over() {
		select {
		case <-ctx.Done():
			return h, ctx.Err()
		case e := <-events:
			if e.ended && (h.killed.IsZero() || e.who != h.first) {
				return h, errors.New("a candidate has ended by itself")
			}
			h.add(e)
			if h.killed.IsZero() && h.enough(c.election != "") {
				h.killed = time.Now()
				group.Go(func() { _ = kill[h.first]() }) // it may be about to say something
			}
		}
	}
	return h, nil
}

// history is what two candidates have done.
type history struct {
	began, killed time.Time
	first         int // who did the job first, and is killed
	did           [2][]time.Time
	ended         bool // the first one has
}

func (h *history) add(e event) {
	if e.ended {
		h.ended = true
		return
	}
	if h.first < 0 {
		h.first = e.who
	}
	h.did[e.who] = append(h.did[e.who], e.at)
}

// enough is whether the first one has led for long enough.
func (h *history) enough(elected bool) bool {
	return h.first >= 0 && len(h.did[h.first]) >= jobs && (elected || len(h.did[1-h.first]) >= jobs)
}

func (h *history) over() bool { return h.ended && len(h.did[1-h.first]) >= jobs }

// twice is how often the first one did the job after the other had begun to.
func (h *history) twice() (n int) {
	for _, at := range h.did[h.first] {
		if at.After(h.tookOver()) {
			n++
		}
	}
	return n
}

// tookOver is when the other one did the job for the first time.
func (h *history) tookOver() time.Time { return h.did[1-h.first][0] }

type result struct {
	start         starter
	kill          string
	without, with history
}

func (r result) String() string {
	since := func(at time.Time) time.Duration { return at.Sub(r.with.began).Round(10 * time.Millisecond) }
	h := &r.with
	return fmt.Sprintf("2 candidates, TTL %v; the leader is killed by %s\n"+
		"without an election: the job was done %d times by one while the other did it, too\nwith an election:    %d times\n"+
		"%6v %c leads\n%6v %c is killed\n%6v %c leads, %v later",
		ttl, r.kill, r.without.twice(), h.twice(),
		since(h.did[h.first][0]), 'A'+h.first, since(h.killed), 'A'+h.first,
		since(h.tookOver()), 'A'+1-h.first, h.tookOver().Sub(h.killed).Round(10*time.Millisecond))
}

package command

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker"
)

// measureAlone acquires and releases one name for a while.
func measureAlone(ctx context.Context, c *locker.Client, length time.Duration) (u uncontended, err error) {
	name := "locker bench " + rand.Text()
	if err := cycle(ctx, c, name); err != nil { // makes connections and sessions
		return u, err
	}
	var took []time.Duration
	begun := time.Now()
	for time.Since(begun) < length {
		at := time.Now()
		if err := cycle(ctx, c, name); err != nil {
			return u, err
		}
		took = append(took, time.Since(at))
	}
	passed := time.Since(begun).Seconds()
	slices.Sort(took)
	return uncontended{
		Seconds: passed, Cycles: len(took), Rate: float64(len(took)) / passed,
		P50: seconds(percentile(took, 50)), P99: seconds(percentile(took, 99)),
	}, nil
}

func cycle(ctx context.Context, c *locker.Client, name string) error {
	k, err := c.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return k.Release(ctx)
}

// race is the state of several clients that want one name. The lock under test
// guards all but the first three fields.
type race struct {
	name    string
	started time.Time
	settle  time.Duration // how long to wait at most until all have been granted once

	begun  time.Time // of the figures: when all had been granted once
	last   int       // who was granted last; -1: nobody yet
	at     time.Time // when that was
	ready  map[int]bool
	counts []int           // grants of each client
	took   []time.Duration // of hand-offs
}

// errOver is the cause with which a race ends.
var errOver = errors.New("the time is over")

// measureContended lets the clients acquire and release one name for a while.
func measureContended(ctx context.Context, cs []*locker.Client, length time.Duration) (contended, error) {
	errs := make([]error, len(cs))
	inParallel(len(cs), func(i int) { // makes connections and sessions
		errs[i] = cycle(ctx, cs[i], "locker bench "+rand.Text())
	})
	if err := errors.Join(errs...); err != nil {
		return contended{}, err
	}
	ctx, over := context.WithTimeoutCause(ctx, length, errOver)
	defer over()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	x := &race{
		name: "locker bench " + rand.Text(), started: time.Now(), settle: length / 4,
		last: -1, ready: make(map[int]bool), counts: make([]int, len(cs)),
	}
	inParallel(len(cs), func(i int) {
		if err := x.run(ctx, cs[i], i); err != nil {
			stop(err)
		}
	})
	if err := context.Cause(ctx); !errors.Is(err, errOver) {
		return contended{}, err
	}
	return x.result()
}

// run acquires and releases until ctx ends.
func (x *race) run(ctx context.Context, c *locker.Client, me int) error {
	for ctx.Err() == nil {
		k, err := c.Acquire(ctx, x.name)
		if err != nil {
			return err // after the end of ctx it is ignored
		}
		x.granted(me)
		if err := k.Release(ctx); err != nil {
			return err
		}
	}
	return nil
}

// granted notes a grant, while holding.
func (x *race) granted(me int) {
	now := time.Now()
	switch {
	case !x.begun.IsZero():
		x.counts[me]++
		if x.last != me {
			x.took = append(x.took, now.Sub(x.at))
		}
	case len(x.ready) == len(x.counts) || now.Sub(x.started) > x.settle:
		x.begun = now
	default:
		x.ready[me] = true
	}
	x.last, x.at = me, time.Now()
}

func (x *race) result() (contended, error) {
	sum, squares := 0.0, 0.0
	for _, n := range x.counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	passed := x.at.Sub(x.begun).Seconds()
	if sum == 0 || passed <= 0 {
		return contended{}, errors.New("nobody was granted the lock twice in this time: measure for longer, or with fewer clients")
	}
	slices.Sort(x.took)
	return contended{
		Clients: len(x.counts), Seconds: passed, Grants: int(sum), Rate: sum / passed,
		P50: seconds(percentile(x.took, 50)), P99: seconds(percentile(x.took, 99)),
		Jain: sum * sum / (float64(len(x.counts)) * squares), // Jain, Chiu and Hawe, DEC-TR-301, 1984
	}, nil
}

// inParallel runs f(0) … f(n-1) at once and waits for all.
func inParallel(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

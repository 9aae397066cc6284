package figures

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// A Race is several clients that acquire and release one name as often as they can.
type Race struct {
	Clients int
	// Acquire acquires the name for a client.
	Acquire func(ctx context.Context, client int) (release func(context.Context) error, err error)
	// Settle is how long to wait, at most, until as many grants have been given as there
	// are clients: then all of them are queued. Those grants are not counted.
	Settle time.Duration
	// Length is for how long grants are counted after that.
	Length time.Duration
	// Sent returns how many requests were sent so far; nil: nobody counts them.
	Sent func() int64
}

// Shares is what a Race has counted.
type Shares struct {
	Took     time.Duration
	Counts   []int           // grants of each client
	Grants   int             // of all of them
	HandOffs []time.Duration // from one client's grant to another client's
	Sent     int64           // requests
}

// errOver is the cause with which a race ends.
var errOver = errors.New("the time is over")

// Run lets the clients compete. It returns the first error of any of them.
func (r Race) Run(ctx context.Context) (Shares, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if r.Sent == nil {
		r.Sent = func() int64 { return 0 }
	}
	x := &race{Race: r, last: -1, given: make(chan struct{}, r.Clients), counts: make([]int, r.Clients)}
	var group sync.WaitGroup
	for i := range r.Clients {
		group.Go(func() {
			if err := x.enter(ctx, i); err != nil {
				stop(err) // after errOver it does nothing
			}
		})
	}
	x.settle(ctx)
	sent, begun := r.Sent(), time.Now()
	x.measured.Store(true)
	select {
	case <-time.After(r.Length):
	case <-ctx.Done():
	}
	x.measured.Store(false)
	s := Shares{Took: time.Since(begun), Sent: r.Sent() - sent}
	stop(errOver)
	group.Wait()
	s.Counts, s.HandOffs = x.counts, x.handOffs
	for _, n := range x.counts {
		s.Grants += n
	}
	if err := context.Cause(ctx); !errors.Is(err, errOver) {
		return s, err
	}
	return s, nil
}

// race is a Race that runs.
type race struct {
	Race

	given    chan struct{} // a value for each of the first grants
	measured atomic.Bool   // grants are counted

	mu       sync.Mutex // the lock under test guards these, too, but a race detector does not see that of every store
	last     int        // who was granted last; -1: nobody yet
	at       time.Time  // when that was
	counts   []int
	handOffs []time.Duration
}

// settle waits until as many grants have been given as there are clients.
func (x *race) settle(ctx context.Context) {
	over := time.After(x.Settle)
	for range x.Clients {
		select {
		case <-x.given:
		case <-over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// enter acquires and releases until ctx ends.
func (x *race) enter(ctx context.Context, me int) error {
	for ctx.Err() == nil {
		release, err := x.Acquire(ctx, me)
		if err != nil {
			return err
		}
		x.granted(me)
		if err := release(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// granted notes a grant, while holding.
func (x *race) granted(me int) {
	select {
	case x.given <- struct{}{}:
	default:
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.measured.Load() {
		x.counts[me]++
		if x.last >= 0 && x.last != me {
			x.handOffs = append(x.handOffs, time.Since(x.at))
		}
	}
	x.last, x.at = me, time.Now()
}

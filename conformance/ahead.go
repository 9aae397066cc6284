package conformance

import (
	"context"
	"slices"
	"sync"
)

const (
	// atOnce is how many cases run at the same time on the store under test, unless
	// the harness says. They spend most of their time waiting for leases to end, so the
	// limit is not the number of processors.
	atOnce = 16
	// busyAtOnce is how many of them keep the store busy.
	busyAtOnce = 2
	// storesAtOnce is how many cases run at the same time on stores of their own.
	storesAtOnce = 3
)

// workers returns how many cases of each kind run at the same time.
func (h Harness) workers() (quiet, busy, own int) {
	if h.AtOnce <= 0 {
		return atOnce - busyAtOnce, busyAtOnce, storesAtOnce
	}
	busy = min(busyAtOnce, max(1, h.AtOnce/8))
	return max(1, h.AtOnce-busy), busy, max(1, h.AtOnce/3)
}

// ahead starts the cases that need not run alone, some at a time, until ctx ends, and
// calls ended after each. wait waits for all of them. Cases that have a store of their own
// are among them. Those that take longest begin first, so that no one is left for the end.
// ahead does not use t.Parallel, whose limit is the number of processors.
func ahead(ctx context.Context, h Harness, results []*result, ended func(*result)) (wait func()) {
	var onShared, busy, onOwn []*result
	results = slices.Clone(results)
	slices.SortStableFunc(results, func(a, b *result) int {
		switch {
		case a.Case.long == b.Case.long:
			return 0
		case a.Case.long:
			return -1
		}
		return 1
	})
	for _, r := range results {
		switch {
		case !r.applies():
			continue
		case r.Case.place == beside && r.Case.busy:
			busy = append(busy, r)
		case r.Case.place == beside:
			onShared = append(onShared, r)
		case r.stores != nil:
			onOwn = append(onOwn, r)
		default:
			continue
		}
		r.ended = make(chan struct{})
	}
	var group sync.WaitGroup
	start := func(results []*result, workers int) {
		queue := make(chan *result, len(results))
		for _, r := range results {
			queue <- r
		}
		close(queue)
		for range workers {
			group.Go(func() {
				for r := range queue {
					if ctx.Err() == nil {
						r.run(ctx)
						ended(r)
					}
					close(r.ended)
				}
			})
		}
	}
	quietly, busily, own := h.workers()
	start(onOwn, own)
	start(busy, busily)
	start(onShared, quietly)
	return group.Wait
}

// stores are the stores of cases that need one of their own. Each is started when it is
// first needed, and serves one case at a time.
type stores struct {
	start func(context.Context) (Harness, error) // Harness.NewServer
	free  chan *Harness                          // nil: not started yet
}

// newStores returns nil if the harness can start none, or runs cases in bubbles, which share no channel.
func newStores(h Harness) *stores {
	if h.NewServer == nil || h.Bubble {
		return nil
	}
	_, _, n := h.workers()
	s := &stores{start: h.NewServer, free: make(chan *Harness, n)}
	for range n {
		s.free <- nil
	}
	return s
}

// use calls f with the harness of a store that nobody else uses, or with h if s is nil.
func (s *stores) use(ctx context.Context, h Harness, f func(Harness) error) error {
	if s == nil {
		return f(h)
	}
	own := <-s.free
	defer func() { s.free <- own }()
	if own == nil {
		started, err := s.start(ctx)
		if err != nil {
			return err
		}
		own = &started
	}
	return f(*own)
}

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/internal/figures"
)

// A result is one row: what one subject did.
type result struct {
	Store   string `json:"store"`
	Subject string `json:"subject"`

	CycleP50   time.Duration `json:"cycle_p50_ns,omitempty"` // acquire and release, alone
	CycleP99   time.Duration `json:"cycle_p99_ns,omitempty"`
	Cycles     float64       `json:"cycles_per_s,omitempty"`        // alone
	Parallel   float64       `json:"parallel_per_s,omitempty"`      // 32 goroutines, one client, a name each
	PerCycle   float64       `json:"requests_per_cycle"`            // alone
	Grants     float64       `json:"grants_per_s,omitempty"`        // 16 clients on one name
	HandoffP50 time.Duration `json:"handoff_p50_ns,omitempty"`      // release to another client's grant
	HandoffP99 time.Duration `json:"handoff_p99_ns,omitempty"`      //
	Jain       float64       `json:"jain,omitempty"`                // of the grants; 1 is even
	PerGrant   []float64     `json:"requests_per_grant"`            // for each number of contenders
	Shared     float64       `json:"shared_per_s,omitempty"`        // 64 goroutines of one client on one name: grants
	SharedReqs float64       `json:"shared_requests,omitempty"`     // for each of them
	HeldHeap   float64       `json:"held_heap_bytes,omitempty"`     // a lock, of many held by one client
	HeldGo     int           `json:"held_goroutines,omitempty"`     // for all of them
	HeldReqs   float64       `json:"held_requests,omitempty"`       // sent in one TTL for all of them
	WaitHeap   float64       `json:"waiting_heap_bytes,omitempty"`  // a waiter, of many of one client
	WaitStack  float64       `json:"waiting_stack_bytes,omitempty"` // its goroutine

	rounds []result // that the figures are the medians of
}

// measure lets the subjects take turns, and takes medians. A store that has just
// been started is slow: the first turns are not counted. Each round begins with
// another subject, so that none always follows the same one.
func measure(tb *bed, storeName string, subjects []subject, cfg config) []result {
	results := make([]result, len(subjects))
	for i, s := range subjects {
		results[i] = result{Store: storeName, Subject: s.name}
		fmt.Fprintf(os.Stderr, "\r  warming up: %-40s", s.name)
		uncontended(tb, s, cfg, &result{})
	}
	for round := range cfg.rounds {
		for i := range subjects {
			s, m := subjects[(i+round)%len(subjects)], &results[(i+round)%len(subjects)]
			fmt.Fprintf(os.Stderr, "\r  round %d of %d: %-40s", round+1, cfg.rounds, s.name)
			var r result
			uncontended(tb, s, cfg, &r)
			contended(tb, s, cfg, &r)
			if s.shared {
				contendShared(tb, s, cfg, &r)
			}
			m.rounds = append(m.rounds, r)
		}
	}
	for i, s := range subjects {
		results[i].takeMedians()
		if s.held && cfg.held > 0 {
			fmt.Fprintf(os.Stderr, "\r  %d held: %-40s", cfg.held, s.name)
			manyHeld(tb, s, cfg, &results[i])
		}
		if s.waiting && cfg.held > 0 {
			fmt.Fprintf(os.Stderr, "\r  %d waiting: %-40s", cfg.held, s.name)
			manyWaiting(tb, s, cfg, &results[i])
		}
	}
	fmt.Fprint(os.Stderr, "\r")
	return results
}

func uncontended(tb *bed, s subject, cfg config, r *result) {
	if s.uncontended {
		alone(tb, s, cfg, r)
		parallel(tb, s, cfg, r)
	}
}

func contended(tb *bed, s subject, cfg config, r *result) {
	if !s.contended {
		return
	}
	r.PerGrant = make([]float64, len(cfg.many))
	for column, n := range cfg.many {
		if s.most == 0 || n <= s.most {
			contendApart(tb, s, n, cfg, r, column)
		}
	}
}

var nameSeq atomic.Int64

func newName() string { return fmt.Sprintf("bench-%d-%d", time.Now().UnixNano(), nameSeq.Add(1)) }

// names makes n names that c is ready for.
func names(tb *bed, c client, n int) []string {
	ns := make([]string, n)
	for i := range ns {
		ns[i] = newName()
		if p, ok := c.(prepared); ok {
			tb.check(p.prepare(context.Background(), ns[i]))
		}
	}
	return ns
}

func cycle(tb *bed, c client, name string) {
	ctx := context.Background()
	release, err := c.acquire(ctx, name)
	tb.check(err)
	tb.check(release(ctx))
}

// alone is one goroutine on one name.
func alone(tb *bed, s subject, cfg config, r *result) {
	var count atomic.Int64
	c := s.open(tb, &count)
	defer c.close()
	name := names(tb, c, 1)[0]
	for range 20 {
		cycle(tb, c, name)
	}
	sent := count.Load()
	var took []time.Duration
	begun := time.Now()
	for time.Since(begun) < cfg.slice {
		t := time.Now()
		cycle(tb, c, name)
		took = append(took, time.Since(t))
	}
	r.Cycles = perSecond(len(took), time.Since(begun))
	r.CycleP50, r.CycleP99 = figures.Percentile(took, 50), figures.Percentile(took, 99)
	r.PerCycle = float64(count.Load()-sent) / float64(len(took))
}

// parallel is many goroutines of one client, a name each.
func parallel(tb *bed, s subject, cfg config, r *result) {
	var count atomic.Int64
	c := s.open(tb, &count)
	defer c.close()
	ns := names(tb, c, cfg.parallel)
	var done atomic.Int64
	var warm, group sync.WaitGroup
	for _, name := range ns { // connections are there, and the plans of their statements: 10 ms each on PostgreSQL
		warm.Go(func() {
			for range 20 {
				cycle(tb, c, name)
			}
		})
	}
	warm.Wait()
	begun := time.Now()
	for _, name := range ns {
		group.Go(func() {
			for time.Since(begun) < cfg.slice {
				cycle(tb, c, name)
				done.Add(1)
			}
		})
	}
	group.Wait()
	r.Parallel = perSecond(int(done.Load()), time.Since(begun))
}

// contendApart is many clients on one name, each with connections of its own. The
// figures but the requests are those of cfg.contenders.
func contendApart(tb *bed, s subject, n int, cfg config, r *result, column int) {
	var count atomic.Int64
	clients := make([]client, n)
	for i := range clients {
		clients[i] = s.open(tb, &count)
		defer clients[i].close()
		cycle(tb, clients[i], names(tb, clients[i], 1)[0]) // sessions and connections are there
	}
	shares := contend(tb, clients, &count, cfg)
	r.PerGrant[column] = perGrantOf(shares)
	if n == cfg.contenders {
		r.Grants, r.Jain = perSecond(shares.Grants, shares.Took), figures.Jain(shares.Counts)
		r.HandoffP50, r.HandoffP99 = figures.Percentile(shares.HandOffs, 50), figures.Percentile(shares.HandOffs, 99)
	}
}

// contendShared is many goroutines of one client on one name.
func contendShared(tb *bed, s subject, cfg config, r *result) {
	var count atomic.Int64
	c := s.open(tb, &count)
	defer c.close()
	cycle(tb, c, names(tb, c, 1)[0])
	shares := contend(tb, slices.Repeat([]client{c}, cfg.goroutines), &count, cfg)
	r.Shared, r.SharedReqs = perSecond(shares.Grants, shares.Took), perGrantOf(shares)
}

// contend lets each client want one name, from a goroutine of its own.
func contend(tb *bed, clients []client, sent *atomic.Int64, cfg config) figures.Shares {
	name := names(tb, clients[0], 1)[0]
	shares, err := figures.Race{
		Clients: len(clients), Settle: cfg.slice + 3*time.Second, Length: cfg.slice, Sent: sent.Load,
		Acquire: func(ctx context.Context, i int) (func(context.Context) error, error) {
			return clients[i].acquire(ctx, name)
		},
	}.Run(context.Background())
	tb.check(err)
	return shares
}

func perGrantOf(s figures.Shares) float64 { return float64(s.Sent) / float64(max(1, s.Grants)) }

// manyHeld is one client that holds many locks at once.
func manyHeld(tb *bed, s subject, cfg config, r *result) {
	var count atomic.Int64
	c := s.open(tb, &count)
	defer c.close()
	warm, err := c.acquire(context.Background(), newName())
	tb.check(err)
	before, goBefore := heap(), runtime.NumGoroutine()
	releases := make([]func(context.Context) error, cfg.held)
	ns := make([]string, cfg.held)
	for i := range ns {
		ns[i] = newName()
	}
	each(cfg.held, func(i int) {
		release, err := c.acquire(context.Background(), ns[i])
		tb.check(err)
		releases[i] = release
	})
	r.HeldHeap = float64(heap()-before) / float64(cfg.held)
	r.HeldGo = max(0, runtime.NumGoroutine()-goBefore) // what idle connections had may have ended
	sent := count.Load()
	time.Sleep(leaseTTL)
	r.HeldReqs = float64(count.Load() - sent)
	each(cfg.held, func(i int) { _ = releases[i](context.Background()) }) // a peer without renewal has lost it
	_ = warm(context.Background())
}

// manyWaiting is one client that waits many times for one name.
func manyWaiting(tb *bed, s subject, cfg config, r *result) {
	var count atomic.Int64
	c := s.open(tb, &count)
	defer c.close()
	name := newName()
	release, err := c.acquire(context.Background(), name)
	tb.check(err)
	ctx, stop := context.WithCancel(context.Background())
	var group sync.WaitGroup
	wait := func() { // its answer is that it waits no more
		group.Go(func() {
			if release, err := c.acquire(ctx, name); err == nil {
				_ = release(context.WithoutCancel(ctx))
			}
		})
	}
	wait() // what the first brings with it is there
	time.Sleep(time.Second)
	before, stackBefore := heap(), stacks()
	for range cfg.held {
		wait()
	}
	for rest := 0; rest < 6; rest++ { // half seconds in which only what keeps them queued is sent: all are queued
		sent := count.Load()
		time.Sleep(leaseTTL / 20)
		if count.Load()-sent > int64(cfg.held/50) {
			rest = 0
		}
	}
	r.WaitHeap = float64(heap()-before) / float64(cfg.held)
	r.WaitStack = float64(stacks()-stackBefore) / float64(cfg.held)
	stop()
	group.Wait()
	_ = release(context.Background())
}

// each runs f for 0 to n-1, 64 at a time.
func each(n int, f func(i int)) {
	var group sync.WaitGroup
	var next atomic.Int64
	for range 64 {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	group.Wait()
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// stacks is those of all goroutines.
func stacks() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.StackInuse
}

func perSecond(n int, d time.Duration) float64 { return float64(n) / d.Seconds() }

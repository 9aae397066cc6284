package nats_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// BenchmarkHandOff measures clients that want one name all the time, each as a process of its own: the time from
// a release to the next grant, and the requests for each.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{2, 16, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { handOffs(b, n) })
	}
}

func handOffs(b *testing.B, n int) {
	addr := testbed.SharedNats(b).Addr()
	var requests, refused atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var released atomic.Int64 // when
	var mu sync.Mutex
	var took []time.Duration
	var clients sync.WaitGroup
	name := fmt.Sprint("bench-", time.Now().UnixNano())
	begin := make(chan struct{})
	grants := make(chan struct{})
	base := time.Now()
	for range n {
		l := locker.New(counted(b, addr, &requests))
		clients.Go(func() {
			defer l.Close()
			<-begin
			for ctx.Err() == nil {
				k, err := l.Acquire(ctx, name)
				if err != nil { // on a busy machine: many clients that queue at once take long
					refused.Add(1)
					continue
				}
				mu.Lock()
				took = append(took, time.Since(base)-time.Duration(released.Load()))
				mu.Unlock()
				select {
				case grants <- struct{}{}:
				case <-ctx.Done():
				}
				released.Store(int64(time.Since(base)))
				if err := k.Release(context.Background()); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	close(begin)
	for range 2 * n { // until all are queued
		<-grants
	}
	mu.Lock()
	took = nil
	mu.Unlock()
	before := requests.Load()
	for b.Loop() {
		<-grants
	}
	mu.Lock()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(requests.Load()-before)/float64(b.N), "requests/op")
	b.ReportMetric(float64(refused.Load()), "refused")
	mu.Unlock()
	cancel()
	clients.Wait()
}

// BenchmarkCycle is a free lock that one process uses.
func BenchmarkCycle(b *testing.B) {
	var requests atomic.Int64
	l := locker.New(counted(b, testbed.SharedNats(b).Addr(), &requests))
	defer l.Close()
	for b.Loop() {
		k, err := l.Acquire(context.Background(), "cycle")
		if err != nil {
			b.Fatal(err)
		}
		if err := k.Release(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(requests.Load())/float64(b.N), "requests/op")
}

package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

// BenchmarkHandOff measures clients that want one name all the time, each as a process of its own: the time from
// a release to the next grant, and the requests and units for each.
func BenchmarkHandOff(b *testing.B) {
	for _, n := range []int{2, 16, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { handOffs(b, n) })
	}
}

func handOffs(b *testing.B, n int) {
	ctx, cancel := context.WithCancel(context.Background())
	var released atomic.Int64 // when
	var queued atomic.Int64   // clients that have waited
	var refused atomic.Int64  // requests that DynamoDB Local was too slow for
	var mu sync.Mutex
	var took []time.Duration
	var all []*units
	var clients sync.WaitGroup
	name := fmt.Sprint("bench-", time.Now().UnixNano())
	begin := make(chan struct{})
	grants := make(chan struct{})
	base := time.Now()
	for i := range n {
		d, u := counted(b, "cost")
		all = append(all, u)
		var once sync.Once
		l := locker.New(d, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				once.Do(func() { queued.Add(1) })
			}
		}))
		clients.Go(func() {
			defer l.Close()
			<-begin
			time.Sleep(time.Duration(i) * 50 * time.Millisecond) // not all at once: few of many writes at a time are done
			for ctx.Err() == nil {
				k, err := l.Acquire(ctx, name)
				if errors.Is(err, locker.ErrUnavailable) {
					refused.Add(1)
					continue
				}
				if err != nil {
					if ctx.Err() == nil {
						b.Error(err)
					}
					return
				}
				mu.Lock()
				took = append(took, time.Since(base)-time.Duration(released.Load()))
				mu.Unlock()
				select {
				case grants <- struct{}{}:
				case <-ctx.Done():
				}
				released.Store(int64(time.Since(base)))
				if err := k.Release(context.Background()); errors.Is(err, locker.ErrUnavailable) {
					refused.Add(1)
				} else if err != nil {
					b.Error(err)
				}
			}
		})
	}
	close(begin)
	// Until all have queued, and the server is warm; or for a minute: DynamoDB Local is too slow for 256.
	for warm := 0; warm < 50 || queued.Load() < int64(n) && time.Since(base) < time.Minute; warm++ {
		<-grants
	}
	sum := func() (requests int, reading, writing float64) {
		for _, u := range all {
			q, r, w := u.take()
			requests, reading, writing = requests+q, reading+r, writing+w
		}
		return requests, reading, writing
	}
	mu.Lock()
	took = nil
	mu.Unlock()
	sum()
	for b.Loop() {
		<-grants
	}
	requests, reading, writing := sum()
	mu.Lock()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
	b.ReportMetric(reading/float64(b.N), "reads/op")
	b.ReportMetric(writing/float64(b.N), "writes/op")
	b.ReportMetric(float64(queued.Load()), "clients")
	b.ReportMetric(float64(refused.Load()), "refused")
	mu.Unlock()
	cancel()
	clients.Wait()
}

// BenchmarkCycle is a free lock that one process uses.
func BenchmarkCycle(b *testing.B) {
	d, u := counted(b, "cost")
	l := locker.New(d)
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
	requests, _, writing := u.take()
	b.ReportMetric(float64(requests)/float64(b.N), "requests/op")
	b.ReportMetric(writing/float64(b.N), "writes/op")
}

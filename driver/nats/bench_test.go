package nats_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/figures"
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
	clients := make([]*locker.Client, n)
	for i := range clients {
		clients[i] = locker.New(counted(b, addr, &requests))
		defer clients[i].Close()
	}
	for b.Loop() {
		name := fmt.Sprint("bench-", time.Now().UnixNano())
		s, err := figures.Race{
			Clients: n, Settle: time.Minute, Length: 2 * time.Second, Sent: requests.Load,
			Acquire: func(ctx context.Context, i int) (func(context.Context) error, error) {
				for {
					k, err := clients[i].Acquire(ctx, name)
					switch {
					case err == nil:
						return func(ctx context.Context) error {
							if err := k.Release(ctx); err != nil {
								refused.Add(1)
							}
							return nil
						}, nil
					case ctx.Err() != nil:
						return nil, err
					}
					refused.Add(1) // on a busy machine: many clients that queue at once take long
				}
			},
		}.Run(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(figures.Percentile(s.HandOffs, 50).Microseconds()), "p50-µs")
		b.ReportMetric(float64(s.Sent)/float64(s.Grants), "requests/grant")
		b.ReportMetric(float64(refused.Load()), "refused")
	}
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

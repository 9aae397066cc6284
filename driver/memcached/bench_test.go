package memcached_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memcached"
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
	addr := testbed.SharedMemcached(b).Addr()
	var requests atomic.Int64
	clients := make([]*locker.Client, n)
	for i := range clients {
		d, err := memcached.New([]string{addr}, memcached.WithDialer(counting(&requests)))
		if err != nil {
			b.Fatal(err)
		}
		clients[i] = locker.New(d)
		defer clients[i].Close()
	}
	for b.Loop() {
		name := fmt.Sprint("bench-", time.Now().UnixNano())
		s, err := figures.Race{
			Clients: n, Settle: time.Minute, Length: 2 * time.Second, Sent: requests.Load,
			Acquire: func(ctx context.Context, i int) (func(context.Context) error, error) {
				k, err := clients[i].Acquire(ctx, name)
				if err != nil {
					return nil, err
				}
				return k.Release, nil
			},
		}.Run(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(figures.Percentile(s.HandOffs, 50).Microseconds()), "p50-µs")
		b.ReportMetric(float64(s.Sent)/float64(s.Grants), "requests/grant")
	}
}

// BenchmarkJoin measures clients that queue for a held name at the same time, each as a process of its own: the time
// until all are queued, and the requests for each.
func BenchmarkJoin(b *testing.B) {
	for _, n := range []int{16, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			addr := testbed.SharedMemcached(b).Addr()
			var requests atomic.Int64
			ds := make([]*memcached.Driver, n+1)
			for i := range ds {
				var err error
				if ds[i], err = memcached.New([]string{addr}, memcached.WithDialer(counting(&requests))); err != nil {
					b.Fatal(err)
				}
				defer ds[i].Close()
				if err := ds[i].Ping(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			requests.Store(0)
			b.ResetTimer()
			for i := range b.N {
				join(b, ds, fmt.Sprint("join-", time.Now().UnixNano(), i))
			}
			b.ReportMetric(float64(requests.Load())/float64(b.N)/float64(n), "requests/client")
		})
	}
}

// join has the first process hold a name, and all others queue for it.
func join(b *testing.B, ds []*memcached.Driver, name string) {
	b.Helper()
	r := driver.Request{Name: name, ID: "holder", TTL: time.Hour}
	if _, err := ds[0].Acquire(b.Context(), r); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var joined, ended sync.WaitGroup
	for i, d := range ds[1:] {
		joined.Add(1)
		w := driver.Request{Name: name, ID: fmt.Sprint(i), TTL: time.Hour, Renewed: true, Wait: true, Joined: joined.Done}
		ended.Go(func() { _, _ = d.Acquire(ctx, w) })
	}
	joined.Wait()
	cancel()
	ended.Wait()
}

// counting makes connections that count the requests. A conditional write and the reading that is sent with it count as
// one.
func counting(n *atomic.Int64) memcached.Dialer { return countingLines(n, "mg ", "replace ") }

// countingLines counts the lines that begin with one of some commands.
func countingLines(n *atomic.Int64, commands ...string) memcached.Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &countingConn{c, n, commands}, err
	}
}

type countingConn struct {
	net.Conn
	n        *atomic.Int64
	commands []string
}

func (c *countingConn) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if slices.ContainsFunc(c.commands, func(command string) bool { return bytes.HasPrefix(line, []byte(command)) }) {
			c.n.Add(1)
		}
	}
	return c.Conn.Write(p)
}

// BenchmarkCycle is a free lock that one process uses.
func BenchmarkCycle(b *testing.B) {
	var requests atomic.Int64
	d, err := memcached.New([]string{testbed.SharedMemcached(b).Addr()}, memcached.WithDialer(counting(&requests)))
	if err != nil {
		b.Fatal(err)
	}
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
	b.ReportMetric(float64(requests.Load())/float64(b.N), "requests/op")
}

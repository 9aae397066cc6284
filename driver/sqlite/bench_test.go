package sqlite_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

func BenchmarkCycle(b *testing.B) {
	d := openAt(b, newPath(b))
	i := 0
	for b.Loop() {
		i++
		r := driver.Request{Name: "a", ID: fmt.Sprint(i), TTL: time.Minute, Wait: true}
		g, err := d.Acquire(context.Background(), r)
		if err != nil {
			b.Fatal(err)
		}
		if err := d.Release(context.Background(), r.Hold(g.Token)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkContended(b *testing.B) {
	path := newPath(b)
	const n = 16
	var ds []*sqlite.Driver
	for range n {
		ds = append(ds, openAt(b, path))
	}
	b.ResetTimer()
	var group sync.WaitGroup
	for k, d := range ds {
		group.Go(func() {
			for i := range b.N {
				r := driver.Request{Name: "a", ID: fmt.Sprint(k, "-", i), TTL: time.Minute, Wait: true}
				g, err := d.Acquire(context.Background(), r)
				if err != nil {
					b.Error(err)
					return
				}
				if err := d.Release(context.Background(), r.Hold(g.Token)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(n*b.N), "us/grant")
}

package sqlite_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

func openAt(tb testing.TB, path string) *sqlite.Driver {
	tb.Helper()
	d, err := sqlite.New(path)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	return d
}

func BenchmarkCycle(b *testing.B) {
	d := openAt(b, filepath.Join(b.TempDir(), "l.db"))
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
	path := filepath.Join(b.TempDir(), "l.db")
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

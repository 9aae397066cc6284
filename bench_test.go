package locker_test

import (
	"context"
	"runtime"
	"strconv"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

func BenchmarkMemory(b *testing.B) {
	l := locker.New(memory.New())
	defer l.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		k, err := l.Acquire(ctx, "stock")
		if err != nil {
			b.Fatal(err)
		}
		if err := k.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHeld reports the heap of each of 10,000 locks that one Client holds, the
// memory driver's part included.
func BenchmarkHeld(b *testing.B) {
	const n = 10_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	names := make([]string, n)
	for i := range names {
		names[i] = "stock:" + strconv.Itoa(i)
	}
	for b.Loop() {
		l := locker.New(memory.New())
		before := heap()
		held := make([]*locker.Lock, n)
		for i, name := range names {
			held[i] = acquire(b, l, name)
		}
		b.ReportMetric(float64(heap()-before)/n, "B/lock")
		runtime.KeepAlive(held)
		_ = l.Close()
	}
}

package locker_test

import (
	"context"
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

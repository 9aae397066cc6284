package lockerslog_test

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	lockerslog "github.com/lockerproject/locker/observe/slog"
)

// The cost of an uncontended cycle on the cheapest store, so that the rest is the cost
// of the log.
func BenchmarkCycle(b *testing.B) {
	logger := func(level slog.Level) *slog.Logger {
		return slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: level}))
	}
	for _, bench := range []struct {
		name string
		opts []locker.ClientOption
	}{
		{"without", nil},
		{"off", []locker.ClientOption{lockerslog.Observer(logger(slog.LevelError))}},
		{"on", []locker.ClientOption{lockerslog.Observer(logger(slog.LevelInfo))}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			l := locker.New(memory.New(), bench.opts...)
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
		})
	}
}

package lockerotel

import (
	"context"
	"testing"

	noopmetric "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	nooptrace "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// The cost of an uncontended cycle on the cheapest store, so that the rest is the cost
// of telemetry.
func BenchmarkCycle(b *testing.B) {
	noMetrics, noSpans := WithMeterProvider(noopmetric.NewMeterProvider()), WithTracerProvider(nooptrace.NewTracerProvider())
	metrics := WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())))
	spans := WithTracerProvider(sdktrace.NewTracerProvider())
	for _, bench := range []struct {
		name string
		opts []locker.ClientOption
	}{
		{"without", nil},
		{"noop", []locker.ClientOption{Observer(noMetrics, noSpans)}},
		{"metrics", []locker.ClientOption{Observer(metrics, noSpans)}},
		{"metrics and spans", []locker.ClientOption{Observer(metrics, spans)}},
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

package lockerotel_test

import (
	"context"
	"fmt"
	"slices"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	lockerotel "github.com/lockerproject/locker/observe/otel"
)

// A program gives its providers an exporter; here they keep what they get.
func ExampleObserver() {
	reader, spans := sdkmetric.NewManualReader(), tracetest.NewSpanRecorder()
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))

	l := locker.New(memory.New(), lockerotel.Observer(
		lockerotel.WithMeterProvider(metrics), lockerotel.WithTracerProvider(traces), // by default the global ones
		lockerotel.WithLockNamesOnSpans(),
	))
	defer l.Close()

	ctx, request := traces.Tracer("shop").Start(context.Background(), "POST /orders")
	err := locker.Do(ctx, l, "order:42", func(context.Context) error {
		_, err := l.TryAcquire(context.Background(), "order:42") // somebody else's
		fmt.Println(err)
		return nil
	})
	request.End()
	fmt.Println(err)

	for _, s := range spans.Ended() {
		fmt.Println(s.Name(), "in", s.Parent().SpanID() == request.SpanContext().SpanID())
	}
	var all metricdata.ResourceMetrics
	_ = reader.Collect(ctx, &all)
	var names []string
	for _, m := range all.ScopeMetrics[0].Metrics {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	fmt.Println(names)
	// Output:
	// locker: try to acquire "order:42" on memory: lock not acquired
	// <nil>
	// locker.acquire in true
	// locker.acquire in false
	// locker.hold in true
	// POST /orders in false
	// [locker.acquire.duration locker.degraded_grants locker.hold.duration locker.holder.count locker.losses locker.rejoins]
}

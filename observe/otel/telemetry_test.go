package lockerotel

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// telemetry is where a test's metrics and spans end up.
type telemetry struct {
	reader   *sdkmetric.ManualReader
	recorder *tracetest.SpanRecorder
	tracers  *sdktrace.TracerProvider
	opts     []Option
}

func newTelemetry(opts ...Option) *telemetry {
	m := &telemetry{reader: sdkmetric.NewManualReader(), recorder: tracetest.NewSpanRecorder()}
	m.tracers = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(m.recorder))
	m.opts = append([]Option{
		WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(m.reader))), WithTracerProvider(m.tracers),
	}, opts...)
	return m
}

// collect returns the metrics that there are.
func (m *telemetry) collect(t *testing.T) []metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := m.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.ScopeMetrics) != 1 || all.ScopeMetrics[0].Scope.Name != scope {
		t.Fatalf("the metrics come from %d scopes", len(all.ScopeMetrics))
	}
	return all.ScopeMetrics[0].Metrics
}

// values are all series that are not zero, as "name{attributes}", without the
// attributes that all have in common. The value of a histogram is "count × mean".
func (m *telemetry) values(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	for _, metric := range m.collect(t) {
		switch data := metric.Data.(type) {
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				if p.Value != 0 {
					values[series(metric.Name, p.Attributes)] = fmt.Sprint(p.Value)
				}
			}
		case metricdata.Gauge[int64]:
			for _, p := range data.DataPoints {
				values[series(metric.Name, p.Attributes)] = fmt.Sprint(p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				values[series(metric.Name, p.Attributes)] = fmt.Sprintf("%d × %.3g", p.Count, p.Sum/float64(p.Count))
			}
		default:
			t.Errorf("%s is a %T", metric.Name, data)
		}
	}
	return values
}

func series(name string, all attribute.Set) string {
	var parts []string
	for _, kv := range all.ToSlice() {
		if kv.Key != keyStore && kv != modes[0] {
			parts = append(parts, fmt.Sprintf("%s=%v", kv.Key, kv.Value.String()))
		}
	}
	return name + "{" + strings.Join(parts, ",") + "}"
}

// compare fails the test unless the values are these.
func compare(t *testing.T, got, want map[string]string) {
	t.Helper()
	keys := slices.Collect(maps.Keys(got))
	keys = slices.AppendSeq(keys, maps.Keys(want))
	slices.Sort(keys)
	for _, key := range slices.Compact(keys) {
		if got[key] != want[key] {
			t.Errorf("%s is %q, want %q", key, got[key], want[key])
		}
	}
}

// points are the attributes of a metric's series.
func points(m metricdata.Metrics) (all []attribute.Set) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			all = append(all, p.Attributes)
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			all = append(all, p.Attributes)
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			all = append(all, p.Attributes)
		}
	}
	return all
}

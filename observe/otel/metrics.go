package lockerotel

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// instruments are the metrics that events are recorded in.
type instruments struct {
	acquireTime, holdTime, renewTime metric.Float64Histogram
	waiters, holders                 metric.Int64UpDownCounter
	losses, rejoins, degradedGrants  metric.Int64Counter
}

// Bounds of the histograms, in seconds.
var (
	waitBounds  = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}
	holdBounds  = []float64{.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300, 1800, 3600, 21600, 86400}
	renewBounds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
)

func newInstruments(m metric.Meter) *instruments {
	return &instruments{
		acquireTime: histogram(m, "locker.acquire.duration", waitBounds,
			"Time that acquisitions of locks took, granted or not."),
		holdTime: histogram(m, "locker.hold.duration", holdBounds,
			"Time that locks were held."),
		renewTime: histogram(m, "locker.renew.duration", renewBounds,
			"Time that renewals of leases took, successful or not."),
		waiters: upDown(m, "locker.waiter.count", "{waiter}",
			"Acquisitions of this process that wait for a lock now."),
		holders: upDown(m, "locker.holder.count", "{holder}",
			"Locks that this process holds now."),
		losses: counter(m, "locker.losses", "{loss}",
			"Locks that were lost: their leases ended before they were released."),
		rejoins: counter(m, "locker.rejoins", "{rejoin}",
			"Waiters whose ticket was gone after an outage of the store, and that queued again."),
		degradedGrants: counter(m, "locker.degraded_grants", "{grant}",
			"Locks that a substitute for the store has granted."),
	}
}

// begin makes the series of events that should never happen: if a series only appears
// with its first increment, an alert sees no increase.
func (i *instruments) begin(store attribute.KeyValue) {
	ctx := context.Background()
	for _, mode := range modes {
		base := []attribute.KeyValue{store, mode}
		add(ctx, i.degradedGrants, 0, base)
		add(ctx, i.rejoins, 0, base)
		for _, kind := range []string{lossExpired, lossRemoved} {
			add(ctx, i.losses, 0, withError(base, kind))
		}
	}
}

// add and record check that the instrument is enabled before they make the set of
// attributes.
func add(ctx context.Context, c interface {
	Enabled(context.Context) bool
	Add(context.Context, int64, ...metric.AddOption)
}, n int64, all []attribute.KeyValue,
) {
	if c.Enabled(ctx) {
		c.Add(ctx, n, metric.WithAttributeSet(attribute.NewSet(all...)))
	}
}

func record(ctx context.Context, h metric.Float64Histogram, seconds float64, all []attribute.KeyValue) {
	if h.Enabled(ctx) {
		h.Record(ctx, seconds, metric.WithAttributeSet(attribute.NewSet(all...)))
	}
}

func histogram(m metric.Meter, name string, bounds []float64, text string) metric.Float64Histogram {
	h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text),
		metric.WithExplicitBucketBoundaries(bounds...))
	return orNoop[metric.Float64Histogram](h, err, noop.Float64Histogram{})
}

func upDown(m metric.Meter, name, unit, text string) metric.Int64UpDownCounter {
	c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(text))
	return orNoop[metric.Int64UpDownCounter](c, err, noop.Int64UpDownCounter{})
}

func counter(m metric.Meter, name, unit, text string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
	return orNoop[metric.Int64Counter](c, err, noop.Int64Counter{})
}

// orNoop reports an instrument that cannot be made to OpenTelemetry's error handler,
// and returns without in its place.
func orNoop[T any](instrument T, err error, without T) T {
	if err != nil {
		otel.Handle(err)
		return without
	}
	return instrument
}

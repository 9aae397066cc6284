package lockerotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of all that this package emits.
const scope = "github.com/lockerproject/locker/observe/otel"

// An Option changes what Observer and ObserveQueues do. A nil Option does nothing.
type Option func(*config)

type config struct {
	meters      metric.MeterProvider
	tracers     trace.TracerProvider
	store       string // instead of the driver's own name
	class       func(name string) string
	spanNames   bool
	metricNames bool
}

func newConfig(opts []Option) config {
	c := config{}
	for _, o := range opts {
		if o != nil {
			o(&c)
		}
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	return c
}

// WithMeterProvider replaces the global MeterProvider. Nil changes nothing; the provider
// of package go.opentelemetry.io/otel/metric/noop turns metrics off.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters = p }
}

// WithTracerProvider replaces the global TracerProvider. Nil changes nothing; the
// provider of package go.opentelemetry.io/otel/trace/noop turns spans off.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.tracers = p }
}

// WithStoreName sets the attribute locker.store, which by default is the result of
// [github.com/lockerproject/locker.Client.Store], such as "redis localhost:6379/0". It is
// for processes that reach one store under different addresses.
func WithStoreName(name string) Option {
	return func(c *config) { c.store = name }
}

// WithLockNames puts the name of the lock (locker.lock.name) on metrics and on spans.
// Each name makes series of its own: it is for programs with few names, all of them
// known.
func WithLockNames() Option {
	return func(c *config) { c.spanNames, c.metricNames = true, true }
}

// WithLockNamesOnSpans puts the name of the lock (locker.lock.name) on spans only.
func WithLockNamesOnSpans() Option {
	return func(c *config) { c.spanNames = true }
}

// WithLockClass puts the result of class for a lock's name (locker.lock.class) on metrics
// and on spans, such as "order" for "order:42". class should have few results; an empty
// one is left out. It is called from many goroutines.
func WithLockClass(class func(name string) string) Option {
	return func(c *config) { c.class = class }
}

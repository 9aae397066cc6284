package lockerotel

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockerproject/locker"
)

// Observer is the option for [locker.New] and [locker.Open] that measures and traces the
// Client's locks. It may be given to several Clients.
func Observer(opts ...Option) locker.ClientOption {
	return newObserver(opts).attach
}

// observer turns events into metrics and spans. It keeps acquisitions and locks by the
// ID of the acquisition.
type observer struct {
	config
	*instruments
	tracer trace.Tracer

	mu      sync.Mutex
	waiting map[uint64]*acquiring
	held    map[uint64]*holding
}

// acquiring is an acquisition that waits or, if it does not wait, has ended.
type acquiring struct {
	attributes []attribute.KeyValue // of its metrics
	named      []attribute.KeyValue // of its spans
	span       trace.Span
}

// holding is a lock that is held.
type holding struct {
	attributes []attribute.KeyValue // of its metrics
	parent     trace.SpanContext
	span       trace.Span
}

func newObserver(opts []Option) *observer {
	c := newConfig(opts)
	return &observer{
		config: c, instruments: newInstruments(c.meters.Meter(scope)), tracer: c.tracers.Tracer(scope),
		waiting: make(map[uint64]*acquiring), held: make(map[uint64]*holding),
	}
}

// attach is the option.
func (o *observer) attach(c *locker.Client) {
	o.begin(keyStore.String(o.storeOf(c.Store())))
	locker.WithObserver(o.observe)(c)
}

func (o *observer) observe(ctx context.Context, e locker.Event) {
	switch e.Kind {
	case locker.EventWaiting:
		o.waits(ctx, e)
	case locker.EventRejoined:
		o.rejoined(ctx, e)
	case locker.EventAcquired:
		o.acquired(ctx, e)
	case locker.EventReentered:
		if e.Waited {
			o.ended(ctx, e)
		}
	case locker.EventFailed:
		o.ended(ctx, e)
	case locker.EventRenewed, locker.EventRenewFailed:
		o.renewed(ctx, e)
	case locker.EventReleased, locker.EventLost:
		o.holdEnded(ctx, e)
	}
}

// begun is an acquisition whose call began e.Elapsed ago.
func (o *observer) begun(ctx context.Context, e locker.Event) *acquiring {
	a := &acquiring{}
	a.attributes, a.named = o.common(e)
	a.span = o.start(ctx, "locker.acquire", e.Elapsed, a.named)
	return a
}

func (o *observer) waits(ctx context.Context, e locker.Event) {
	a := o.begun(ctx, e)
	a.span.AddEvent("queued")
	add(ctx, o.waiters, 1, a.attributes)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.waiting[e.ID] = a
}

func (o *observer) rejoined(ctx context.Context, e locker.Event) {
	o.mu.Lock()
	a := o.waiting[e.ID]
	o.mu.Unlock()
	if a == nil { // a driver that does not report that the ticket is queued
		all, _ := o.common(e)
		add(ctx, o.rejoins, 1, all)
		return
	}
	a.span.AddEvent("rejoined")
	add(ctx, o.rejoins, 1, a.attributes)
}

// ended ends the wait, if there is one, and records the acquisition.
func (o *observer) ended(ctx context.Context, e locker.Event) *acquiring {
	o.mu.Lock()
	a := o.waiting[e.ID]
	delete(o.waiting, e.ID)
	o.mu.Unlock()
	if a == nil {
		a = o.begun(ctx, e)
	} else {
		add(ctx, o.waiters, -1, a.attributes)
	}
	kind := kindOf(e)
	contended := keyContended.Bool(e.Waited || kind == "not_acquired")
	record(ctx, o.acquireTime, e.Elapsed.Seconds(), withError(with(a.attributes, contended), kind))
	a.end(e, kind, contended)
	return a
}

// acquired ends the acquisition and begins the hold.
func (o *observer) acquired(ctx context.Context, e locker.Event) {
	a := o.ended(ctx, e)
	add(ctx, o.holders, 1, a.attributes)
	if e.Degraded != nil {
		add(ctx, o.degradedGrants, 1, a.attributes)
	}
	h := o.hold(ctx, e, a)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held[e.ID] = h
}

func (o *observer) renewed(ctx context.Context, e locker.Event) {
	o.mu.Lock()
	h := o.held[e.ID]
	o.mu.Unlock()
	if h == nil {
		return
	}
	kind := kindOf(e)
	record(ctx, o.renewTime, e.Elapsed.Seconds(), withError(h.attributes, kind))
	if kind != "" {
		h.span.AddEvent("renewal failed", trace.WithAttributes(keyError.String(kind), keyMessage.String(e.Err.Error())))
	}
}

// holdEnded records the end of a hold.
func (o *observer) holdEnded(ctx context.Context, e locker.Event) {
	o.mu.Lock()
	h := o.held[e.ID]
	delete(o.held, e.ID)
	o.mu.Unlock()
	if h == nil {
		return
	}
	kind := kindOf(e)
	add(ctx, o.holders, -1, h.attributes)
	record(ctx, o.holdTime, e.Elapsed.Seconds(), withError(h.attributes, kind))
	if e.Kind == locker.EventLost {
		add(ctx, o.losses, 1, withError(h.attributes, kind))
	}
	h.end(ctx, e, kind)
}

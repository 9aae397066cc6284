package lockerotel

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockerproject/locker"
)

// start begins a span at the present time less ago.
func (o *observer) start(ctx context.Context, name string, ago time.Duration, all []attribute.KeyValue, more ...trace.SpanStartOption) trace.Span {
	_, span := o.tracer.Start(ctx, name, append(more,
		trace.WithTimestamp(time.Now().Add(-ago)), trace.WithAttributes(all...))...)
	return span
}

// end ends the span of an acquisition. A refusal, or the caller's giving up, is no
// failure.
func (a *acquiring) end(e locker.Event, kind string, contended attribute.KeyValue) {
	if a.span.IsRecording() {
		a.span.SetAttributes(contended)
		if e.Token != 0 {
			a.span.SetAttributes(tokenOf(e))
		}
		if e.Degraded != nil {
			a.span.SetAttributes(keyDegraded.Bool(true))
		}
		if e.Kind == locker.EventReentered {
			a.span.SetAttributes(keyReentered.Bool(true))
		}
		fail(a.span, e, kind, kind != "not_acquired" && kind != "canceled")
	}
	a.span.End()
}

// hold begins the span of a lock that was just granted.
func (o *observer) hold(ctx context.Context, e locker.Event, a *acquiring) *holding {
	h := &holding{attributes: a.attributes, parent: trace.SpanContextFromContext(ctx)}
	var links []trace.SpanStartOption
	if of := a.span.SpanContext(); of.IsValid() {
		links = append(links, trace.WithLinks(trace.Link{SpanContext: of}))
	}
	h.span = o.start(ctx, "locker.hold", 0, with(a.named, tokenOf(e)), links...)
	return h
}

// end ends the span of a lock. Release may have another caller than Acquire.
func (h *holding) end(ctx context.Context, e locker.Event, kind string) {
	if h.span.IsRecording() {
		if by := trace.SpanContextFromContext(ctx); by.IsValid() && !by.Equal(h.parent) {
			h.span.AddLink(trace.Link{SpanContext: by})
		}
		if e.Kind == locker.EventLost {
			h.span.AddEvent("lost")
		}
		fail(h.span, e, kind, true)
	}
	h.span.End()
}

// fail records on a span what went wrong, if something did.
func fail(span trace.Span, e locker.Event, kind string, failed bool) {
	if kind == "" {
		return
	}
	span.SetAttributes(keyError.String(kind))
	if failed {
		span.SetStatus(codes.Error, e.Err.Error())
	}
}

func tokenOf(e locker.Event) attribute.KeyValue {
	return keyToken.Int64(int64(e.Token)) // those of all stores are below 1<<63
}

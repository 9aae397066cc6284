package lockerotel

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
)

// span returns the n-th ended span of the given name.
func (m *telemetry) span(t *testing.T, name string, n int) sdktrace.ReadOnlySpan {
	t.Helper()
	for _, s := range m.recorder.Ended() {
		if s.Name() != name {
			continue
		}
		if n--; n < 0 {
			return s
		}
	}
	t.Fatalf("there is no such span: %s", name)
	return nil
}

func (m *telemetry) caller(ctx context.Context) (context.Context, trace.SpanContext) {
	ctx, span := m.tracers.Tracer("test").Start(ctx, "caller")
	span.End()
	return ctx, span.SpanContext()
}

// attributesOf returns the attributes except those that every span has.
func attributesOf(s sdktrace.ReadOnlySpan) string {
	return series("", attribute.NewSet(slices.DeleteFunc(slices.Clone(s.Attributes()), func(kv attribute.KeyValue) bool {
		return kv.Key == keyToken
	})...))
}

func eventsOf(s sdktrace.ReadOnlySpan) string {
	var names []string
	for _, e := range s.Events() {
		names = append(names, e.Name)
	}
	return strings.Join(slices.Compact(names), ", ")
}

func linked(s sdktrace.ReadOnlySpan, to trace.SpanContext) bool {
	return slices.ContainsFunc(s.Links(), func(l sdktrace.Link) bool { return l.SpanContext.SpanID() == to.SpanID() })
}

// The caller's span is the parent of both spans, also where the acquisition had to wait and
// the lock was released elsewhere; times are those of the call and of the hold.
func TestSpans(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New(Observer(m.opts...))
		defer l.Close()
		first := acquire(t, l, "a")
		time.AfterFunc(3*time.Second, func() { release(t, first) })
		ctx, caller := m.caller(t.Context())
		begun := time.Now()
		k, err := l.Acquire(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		other, releaser := m.caller(t.Context())
		if err := k.Release(other); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the event of a renewal at the same moment delivers that of the end

		a, h := m.span(t, "locker.acquire", 1), m.span(t, "locker.hold", 1)
		for _, s := range []sdktrace.ReadOnlySpan{a, h} {
			if s.Parent().SpanID() != caller.SpanID() || s.Status().Code != codes.Unset {
				t.Errorf("%s: parent %v, status %v", s.Name(), s.Parent(), s.Status())
			}
		}
		if !a.StartTime().Equal(begun) || a.EndTime().Sub(begun) != 3*time.Second {
			t.Errorf("the acquisition took from %v to %v, begun %v", a.StartTime(), a.EndTime(), begun)
		}
		if !h.StartTime().Equal(a.EndTime()) || h.EndTime().Sub(h.StartTime()) != time.Minute {
			t.Errorf("held from %v to %v", h.StartTime(), h.EndTime())
		}
		if got := attributesOf(a); got != "{locker.contended=true}" {
			t.Errorf("acquire: %s", got)
		}
		if got := eventsOf(a); got != "queued" || len(a.Links()) != 0 {
			t.Errorf("acquire: events %s, links %v", got, a.Links())
		}
		if len(h.Links()) != 2 || !linked(h, a.SpanContext()) || !linked(h, releaser) || eventsOf(h) != "" {
			t.Errorf("hold: links %v, events %v", h.Links(), h.Events())
		}
		if !slices.Contains(h.Attributes(), keyToken.Int64(int64(k.Token()))) {
			t.Errorf("hold: no token in %v", h.Attributes())
		}
		if first := m.span(t, "locker.hold", 0); len(first.Links()) != 1 || first.Parent().IsValid() {
			t.Errorf("a hold without a caller: links %v, parent %v", first.Links(), first.Parent())
		}
	})
}

// An acquisition begins with its call, not with the store's first answer.
func TestSpansBeginWithTheCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New(Observer(m.opts...))
		defer l.Close()
		l.Slow(500 * time.Millisecond)
		k := acquire(t, l, "a")
		var group sync.WaitGroup
		group.Go(func() {
			time.Sleep(5 * time.Second)
			release(t, k)
		})
		begun := time.Now()
		acquire(t, l, "a")
		group.Wait()
		s := m.span(t, "locker.acquire", 0)
		if d := s.EndTime().Sub(s.StartTime()); d != 500*time.Millisecond {
			t.Errorf("without a wait it took %v", d)
		}
		s = m.span(t, "locker.acquire", 1)
		if queued := s.Events()[0]; !s.StartTime().Equal(begun) || queued.Time.Sub(begun) != 500*time.Millisecond || s.EndTime().Sub(begun) < 5*time.Second {
			t.Errorf("it began %v after the call, was queued after %v, and took %v", s.StartTime().Sub(begun), queued.Time.Sub(begun), s.EndTime().Sub(begun))
		}
	})
}

// A lock that is lost says when its renewal failed and how it ended.
func TestSpansOfLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New(Observer(m.opts...))
		defer l.Close()
		ctx, caller := m.caller(t.Context())
		lapsed, err := l.Acquire(ctx, "a", locker.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		l.Down()
		<-lapsed.Done()
		synctest.Wait() // Done is closed before the event of the loss
		_, err = l.TryAcquire(ctx, "a")
		refused(t, err, locker.ErrUnavailable)
		l.Heal()
		acquire(t, l, "b")
		l.Lose("b")
		synctest.Wait()

		h := m.span(t, "locker.hold", 0)
		if h.Parent().SpanID() != caller.SpanID() || len(h.Links()) != 1 {
			t.Errorf("parent %v, links %v", h.Parent(), h.Links())
		}
		if got := eventsOf(h); got != "renewal failed, lost" {
			t.Errorf("events: %s", got)
		}
		if e := h.Events()[0].Attributes; !slices.Contains(e, keyError.String("unavailable")) {
			t.Errorf("the failed renewal has %v", e)
		}
		if got := attributesOf(h); got != "{error.type=expired}" || h.Status().Code != codes.Error || h.Status().Description == "" {
			t.Errorf("expired: %s, %v", got, h.Status())
		}
		if h := m.span(t, "locker.hold", 1); attributesOf(h) != "{error.type=removed}" || h.Status().Code != codes.Error || eventsOf(h) != "lost" {
			t.Errorf("removed: %s, %v, %s", attributesOf(h), h.Status(), eventsOf(h))
		}
		if a := m.span(t, "locker.acquire", 1); attributesOf(a) != "{error.type=unavailable,locker.contended=false}" || a.Status().Code != codes.Error {
			t.Errorf("unavailable: %s, %v", attributesOf(a), a.Status())
		}
	})
}

// A try that is refused and a wait that its caller gives up are answers, no failures.
func TestSpansOfRefusals(t *testing.T) {
	m := newTelemetry()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := lockertest.New(Observer(m.opts...), locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			cancel()
		}
	}))
	defer l.Close()
	acquire(t, l, "a")
	_, err := l.TryAcquire(t.Context(), "a")
	refused(t, err, locker.ErrNotAcquired)
	_, err = l.Acquire(ctx, "a")
	refused(t, err, context.Canceled)
	for i, kind := range []string{"not_acquired", "canceled"} {
		s := m.span(t, "locker.acquire", i+1)
		if attributesOf(s) != "{error.type="+kind+",locker.contended=true}" || s.Status().Code != codes.Unset {
			t.Errorf("%s, %v", attributesOf(s), s.Status())
		}
	}
}

// The loss of a ticket in an outage is an event of the acquisition; a re-entry that had to
// wait is an acquisition and no hold.
func TestSpansOfARejoinAndAReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New()
		defer l.Close()
		k := acquire(t, l, "a")
		other := l.Join(Observer(m.opts...))
		defer other.Close()
		for range 2 {
			go func() { _, _ = other.Acquire(t.Context(), "a", locker.WithOwner("me")) }()
			synctest.Wait()
		}
		other.Down()
		time.Sleep(2 * lockertest.Liveness)
		other.Heal()
		time.Sleep(time.Second)
		release(t, k)
		synctest.Wait()
		var acquired, reentered sdktrace.ReadOnlySpan
		for i := range 2 {
			if s := m.span(t, "locker.acquire", i); slices.Contains(s.Attributes(), keyReentered.Bool(true)) {
				reentered = s
			} else {
				acquired = s
			}
		}
		if acquired == nil || reentered == nil || eventsOf(acquired) != "queued, rejoined" || eventsOf(reentered) != "queued" {
			t.Errorf("acquired %v, re-entered %v", acquired, reentered)
		}
	})
}

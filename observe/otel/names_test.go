package lockerotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// Names of locks are recorded only if an option says so, and only where it says so.
func TestNamesOfLocks(t *testing.T) {
	class := WithLockClass(func(name string) string {
		before, _, _ := strings.Cut(name, ":")
		return strings.TrimPrefix(before, "none")
	})
	for _, test := range []struct {
		about   string
		opts    []Option
		metrics string
		spans   string
	}{
		{"default", nil, "", ""},
		{"on spans", []Option{WithLockNamesOnSpans()}, "", "locker.lock.name=none:7 locker.lock.name=order:42"},
		{"on both", []Option{nil, WithLockNames()}, "locker.lock.name=none:7 locker.lock.name=order:42", "locker.lock.name=none:7 locker.lock.name=order:42"},
		{"classes", []Option{class}, "locker.lock.class=order", "locker.lock.class=order"},
		{
			"classes, and names on spans",
			[]Option{class, WithLockNamesOnSpans()},
			"locker.lock.class=order",
			"locker.lock.class=order locker.lock.name=none:7 locker.lock.name=order:42",
		},
		{"a name for the store", []Option{WithStoreName("main")}, "", ""},
	} {
		t.Run(test.about, func(t *testing.T) {
			m := newTelemetry(test.opts...)
			l := locker.New(memory.New(), Observer(m.opts...))
			defer l.Close()
			for _, name := range []string{"order:42", "none:7"} {
				k := acquire(t, l, name)
				_, err := l.TryAcquire(t.Context(), name)
				refused(t, err, locker.ErrNotAcquired)
				release(t, k)
			}
			var metrics, spans [][]attribute.KeyValue
			for _, metric := range m.collect(t) {
				for _, p := range points(metric) {
					metrics = append(metrics, p.ToSlice())
				}
			}
			for _, s := range m.recorder.Ended() {
				spans = append(spans, s.Attributes())
			}
			store := "memory"
			if test.about == "a name for the store" {
				store = "main"
			}
			if got := namesIn(t, metrics, store); got != test.metrics {
				t.Errorf("on metrics: %s", got)
			}
			if got := namesIn(t, spans, store); got != test.spans {
				t.Errorf("on spans: %s", got)
			}
		})
	}
}

// namesIn returns the attributes about names that there are, and checks the store's.
func namesIn(t *testing.T, all [][]attribute.KeyValue, store string) string {
	t.Helper()
	names := map[string]bool{}
	for _, attributes := range all {
		if !slices.Contains(attributes, keyStore.String(store)) {
			t.Errorf("the store is not %s: %v", store, attributes)
		}
		for _, kv := range attributes {
			if kv.Key == keyName || kv.Key == keyClass || strings.Contains(kv.Value.String(), "order") {
				names[fmt.Sprintf("%s=%s", kv.Key, kv.Value.String())] = true
			}
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

// error.type has few values, and an outage of the store has precedence.
func TestErrorTypes(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.Join(locker.ErrNotAcquired, fmt.Errorf("down: %w", locker.ErrUnavailable)), "unavailable"},
		{locker.ErrNotAcquired, "not_acquired"},
		{locker.ErrClosed, "closed"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
		{locker.ErrUpgrade, "upgrade"},
		{locker.ErrUnsupported, "unsupported"},
		{locker.ErrInvalidOption, "invalid"},
		{errors.New("ERROR 1142: SELECT command denied to user 'u42'"), "_OTHER"},
	} {
		if got := kindOf(locker.Event{Kind: locker.EventFailed, Err: test.err}); got != test.want {
			t.Errorf("%v is %q, want %q", test.err, got, test.want)
		}
	}
}

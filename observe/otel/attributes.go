package lockerotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/lockerproject/locker"
)

// The attributes.
const (
	keyStore     = attribute.Key("locker.store")
	keyMode      = attribute.Key("locker.lock.mode")
	keyName      = attribute.Key("locker.lock.name")
	keyClass     = attribute.Key("locker.lock.class")
	keyToken     = attribute.Key("locker.lock.token")
	keyContended = attribute.Key("locker.contended")
	keyReentered = attribute.Key("locker.reentered")
	keyDegraded  = attribute.Key("locker.degraded")
	keyState     = attribute.Key("locker.ticket.state")
	keyError     = attribute.Key("error.type")
	keyMessage   = attribute.Key("error.message")
)

var modes = [...]attribute.KeyValue{keyMode.String("exclusive"), keyMode.String("shared")}

// kinds are the values of error.type, in order of precedence: an outage comes first,
// since it causes other errors.
var kinds = []struct {
	is   error
	kind string
}{
	{locker.ErrUnavailable, "unavailable"},
	{locker.ErrNotAcquired, "not_acquired"},
	{locker.ErrClosed, "closed"},
	{context.DeadlineExceeded, "timeout"},
	{context.Canceled, "canceled"},
	{locker.ErrUpgrade, "upgrade"},
	{locker.ErrUnsupported, "unsupported"},
	{locker.ErrInvalidOption, "invalid"},
}

// The kinds of losses.
const (
	lossExpired = "expired" // the lease was not renewed in time
	lossRemoved = "removed" // the store does not have the ticket any more
)

// kindOf is the error.type of an event; empty: it is no error.
func kindOf(e locker.Event) string {
	switch {
	case e.Kind == locker.EventLost && errors.Is(e.Err, locker.ErrLost):
		return lossRemoved
	case e.Kind == locker.EventLost:
		return lossExpired
	case e.Err == nil:
		return ""
	}
	for _, k := range kinds {
		if errors.Is(e.Err, k.is) {
			return k.kind
		}
	}
	return "_OTHER"
}

// common are the attributes of everything about one lock, on metrics and spans.
func (c *config) common(e locker.Event) (onMetrics, onSpans []attribute.KeyValue) {
	mode := modes[0]
	if e.Shared {
		mode = modes[1]
	}
	all := make([]attribute.KeyValue, 2, 6) // capacity for what an event adds
	all[0], all[1] = keyStore.String(c.storeOf(e.Store)), mode
	if c.class != nil {
		if class := c.class(e.Name); class != "" {
			all = append(all, keyClass.String(class))
		}
	}
	if !c.spanNames {
		return all, all
	}
	named := append(all[:len(all):len(all)], keyName.String(e.Name))
	if c.metricNames {
		return named, named
	}
	return all, named
}

func (c *config) storeOf(name string) string {
	if c.store != "" {
		return c.store
	}
	return name
}

// with returns all and more.
func with(all []attribute.KeyValue, more ...attribute.KeyValue) []attribute.KeyValue {
	return append(all[:len(all):len(all)], more...)
}

// withError returns all and, after a failure, its kind.
func withError(all []attribute.KeyValue, kind string) []attribute.KeyValue {
	if kind == "" {
		return all
	}
	return with(all, keyError.String(kind))
}

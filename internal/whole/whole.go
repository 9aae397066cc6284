// Package whole marks the contexts of the acquisitions that one call makes: the wait limit
// counts for all of them together.
package whole

import (
	"context"
	"time"
)

type key struct{}

// part is what the context of an acquisition has of the call that makes it.
type part struct {
	call context.Context // ends when the call returns: observers may get its values later
	at   time.Time
}

// Call returns the context for the acquisitions of a call that begins now, and ends with
// cancel. If the call is itself a part of another one, that one's beginning counts.
func Call(ctx context.Context) (call context.Context, cancel context.CancelFunc) {
	call, cancel = context.WithCancel(ctx)
	if _, inner := Begun(ctx); !inner {
		call = context.WithValue(call, key{}, &part{call, time.Now()})
	}
	return call, cancel
}

// Begun returns when the call began that an acquisition under ctx is a part of, if any.
func Begun(ctx context.Context) (at time.Time, ok bool) {
	p, ok := ctx.Value(key{}).(*part)
	if !ok || p.call.Err() != nil {
		return time.Time{}, false
	}
	return p.at, true
}

// Package whole marks the contexts of the acquisitions that one call makes: the wait limit
// counts for all of them together.
package whole

import (
	"context"
	"time"
)

type key struct{}

// call is the value of the mark.
type call struct {
	ctx   context.Context // ends with the call: what keeps its values is no part of it any more
	begun time.Time
}

// Call returns the context for the acquisitions of a call that begins now, and what ends it. If
// the call is itself a part of another one, that one's beginning counts.
func Call(ctx context.Context) (context.Context, context.CancelFunc) {
	all, end := context.WithCancel(ctx)
	if Begun(ctx).IsZero() {
		all = context.WithValue(all, key{}, call{all, time.Now()})
	}
	return all, end
}

// Begun returns when the call began that an acquisition under ctx is a part of; zero: of none.
func Begun(ctx context.Context) time.Time {
	c, ok := ctx.Value(key{}).(call)
	if !ok || c.ctx.Err() != nil {
		return time.Time{}
	}
	return c.begun
}

// Outside returns a context for what is no part of that call, such as an observer's own.
func Outside(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, nil) }

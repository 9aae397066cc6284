// Package whole marks the contexts of the acquisitions that one call makes: the wait limit
// counts for all of them together.
package whole

import (
	"context"
	"time"
)

type key struct{}

// Call returns the context for the acquisitions of a call that begins now. If the call is
// itself a part of another one, that one's beginning counts.
func Call(ctx context.Context) context.Context {
	if !Begun(ctx).IsZero() {
		return ctx
	}
	return context.WithValue(ctx, key{}, time.Now())
}

// Begun returns when the call began that an acquisition under ctx is a part of; zero: of none.
func Begun(ctx context.Context) time.Time {
	at, _ := ctx.Value(key{}).(time.Time)
	return at
}

// Outside returns a context for what is no part of that call, such as an observer's own.
func Outside(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, nil) }

package sqlite

import (
	"context"
	"time"
)

// WithThrough makes every access of the driver pass f.
func WithThrough(f func(ctx context.Context, access func() error) error) Option {
	return func(o *options) { o.through = f }
}

// WithSweep sets how often the driver looks for what has expired while it does not wait.
func WithSweep(d time.Duration) Option { return func(o *options) { o.sweep = d } }

package sqlite

import (
	"context"
	"time"
)

// WithInterceptor calls f for every transaction of the driver.
func WithInterceptor(f func(ctx context.Context, transaction func() error) error) Option {
	return func(o *options) { o.intercept = f }
}

// WithSweep sets how often the driver looks for what has expired while it does not wait.
func WithSweep(d time.Duration) Option { return func(o *options) { o.sweep = d } }

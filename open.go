package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockerproject/locker/driver"
)

// Open makes a Client from a URL, with the driver that is registered for its
// scheme: import the driver's package. The parameters that all stores know are
// prefix (of what the store holds, default "locker") and ttl (the default
// lease, as for time.ParseDuration). Most drivers reach no store here: use
// [Client.Ping] to know that it answers. A URL that is wrong is ErrInvalidOption.
// Errors never tell the password.
func Open(ctx context.Context, url string, opts ...ClientOption) (*Client, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("locker: open: %w", err)
	}
	ttl := u.Duration("ttl", DefaultTTL)
	d, err := driver.Open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("locker: open %s: %w", u.Redacted(), unanswered(err))
	}
	if err := u.Done(); err != nil { // of the ttl, if the driver did not look
		return nil, errors.Join(fmt.Errorf("locker: open %s: %w", u.Redacted(), err), d.Close())
	}
	return New(d, append([]ClientOption{WithDefaults(WithTTL(ttl))}, opts...)...), nil
}

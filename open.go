package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockerproject/locker/driver"
)

// Open makes a Client from a URL, with the driver that is registered for its scheme;
// import the driver's package for that. Every store has the parameter ttl (the default
// TTL, as for time.ParseDuration), and all but SQLite have prefix (of everything that
// locker keeps in the store; default "locker"). Most drivers do not ask the store here:
// use [Client.Ping] to find out whether it answers. An invalid URL or client option is
// ErrInvalidOption. No error contains the password.
func Open(ctx context.Context, url string, opts ...ClientOption) (*Client, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("locker: open: %w", err)
	}
	ttl := u.Duration("ttl", DefaultTTL)
	if ttl < minTTL {
		u.Refuse(fmt.Errorf("parameter ttl: %v: want %v or more", ttl, minTTL))
	}
	d, err := driver.Open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("locker: open %s: %w", u.Redacted(), unanswered(err))
	}
	if err := u.Done(); err != nil { // about ttl, if the driver did not call it
		return nil, errors.Join(fmt.Errorf("locker: open %s: %w", u.Redacted(), err), d.Close())
	}
	c := New(d, append([]ClientOption{WithDefaults(WithTTL(ttl))}, opts...)...)
	if c.invalid != nil {
		return nil, errors.Join(fmt.Errorf("locker: open %s: %w", u.Redacted(), c.invalid), c.Close())
	}
	return c, nil
}

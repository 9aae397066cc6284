package compose

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/lockerproject/locker/driver"
)

func init() {
	driver.Register("all", openAll)
	driver.Register("fallback", openFallback)
	driver.Register("tokenbase", openTokenBase)
}

func openAll(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	parts := u.Parts()
	authority := u.Int("authority", len(parts)-1, 0)
	if len(parts) > 0 && authority >= len(parts) {
		return nil, fmt.Errorf("parameter authority=%d: there are %d stores, counted from 0", authority, len(parts))
	}
	drivers, err := open(ctx, u, len(parts) >= 1, "at least one URL in parentheses")
	if err != nil {
		return nil, err
	}
	return All(drivers...).Authority(authority), nil
}

func openFallback(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	patience := u.Duration("patience", DefaultPatience)
	drivers, err := open(ctx, u, len(u.Parts()) == 2, "two URLs in parentheses")
	if err != nil {
		return nil, err
	}
	return Fallback(drivers[primary], drivers[secondary]).Patience(patience), nil
}

func openTokenBase(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	n, err := strconv.ParseUint(u.Param("n", ""), 10, 64)
	if err != nil || n > maxTokenBase {
		return nil, fmt.Errorf("parameter n: want a whole number from 0 to %d", uint64(maxTokenBase))
	}
	drivers, err := open(ctx, u, len(u.Parts()) == 1, "one URL in parentheses")
	if err != nil {
		return nil, err
	}
	return TokenBase(drivers[0], n), nil
}

// open opens the inner URLs. An inner URL without a prefix gets the outer one's.
func open(ctx context.Context, u *driver.URL, enough bool, want string) (drivers []driver.Driver, err error) {
	prefix := u.Param("prefix", "")
	if !enough || len(u.Hosts) > 0 || u.HasUser || u.Path != "" {
		return nil, fmt.Errorf("want %s, such as %s://(memory://a)", want, u.Scheme)
	}
	if err := u.Done(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			for _, d := range drivers {
				err = errors.Join(err, d.Close())
			}
		}
	}()
	for _, part := range u.Parts() {
		if prefix != "" {
			part.SetDefault("prefix", prefix)
		}
		d, err := driver.Open(ctx, part)
		if err != nil {
			return drivers, fmt.Errorf("%s: %w", part.Redacted(), err)
		}
		drivers = append(drivers, d)
		if err := part.Done(); err != nil {
			return drivers, fmt.Errorf("%s: %w", part.Redacted(), err)
		}
	}
	return drivers, nil
}

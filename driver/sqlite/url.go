package sqlite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/machine"
)

func init() { driver.Register("sqlite", openURL) }

func openURL(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	path, pathErr := pathOf(u)
	opts := []Option{WithBusyTimeout(u.Duration("busy_timeout", DefaultBusyTimeout))}
	if !u.Bool("create", true) {
		opts = append(opts, WithoutCreate())
	}
	u.Duration("ttl", time.Second) // the core's
	if m, ok := machine.From(ctx); ok {
		opts = append(opts, on(m))
	}
	if u.Param("prefix", "") != "" {
		pathErr = errors.Join(pathErr, errors.New("parameter prefix: a file is a space of locks of its own; give another path instead"))
	}
	if err := errors.Join(pathErr, u.Done()); err != nil {
		return nil, err
	}
	return New(path, opts...)
}

// pathOf is the path in a URL: absolute, or relative to the working folder after a dot.
func pathOf(u *driver.URL) (string, error) {
	relative := len(u.Hosts) == 1 && (u.Hosts[0] == "." || u.Hosts[0] == "..")
	if u.HasUser || len(u.Hosts) > 0 && !relative || strings.HasSuffix(u.Path, "/") || u.Path == "" {
		return "", fmt.Errorf("want sqlite:///absolute/path.db or sqlite://./relative/path.db, got %s", u.Redacted())
	}
	if relative {
		return filepath.FromSlash(u.Hosts[0] + u.Path), nil
	}
	return filepath.FromSlash(u.Path), nil
}

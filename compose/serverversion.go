package compose

import (
	"context"
	"errors"
	"strings"

	"github.com/lockerproject/locker/driver"
)

var (
	_ driver.ServerVersioner = (*AllDriver)(nil)
	_ driver.ServerVersioner = (*FallbackDriver)(nil)
	_ driver.ServerVersioner = (*based)(nil)
)

// ServerVersion implements driver.ServerVersioner for all stores.
func (m *AllDriver) ServerVersion(ctx context.Context) (string, error) { return versions(ctx, m.parts) }

// ServerVersion implements driver.ServerVersioner for both stores.
func (f *FallbackDriver) ServerVersion(ctx context.Context) (string, error) {
	return versions(ctx, f.stores[:])
}

func (b *based) ServerVersion(ctx context.Context) (string, error) {
	return versions(ctx, []driver.Driver{b.d})
}

// versions joins the versions of the stores that report one.
func versions(ctx context.Context, stores []driver.Driver) (string, error) {
	var (
		versions []string
		errs     []error
	)
	for _, d := range stores {
		v, ok := d.(driver.ServerVersioner)
		if !ok {
			errs = append(errs, driver.ErrUnsupported)
			continue
		}
		version, err := v.ServerVersion(ctx)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		versions = append(versions, version)
	}
	if len(versions) == 0 {
		return "", errors.Join(errs...)
	}
	return strings.Join(versions, ", "), nil
}

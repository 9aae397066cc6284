package compose

import (
	"context"
	"errors"
	"strings"
	"sync"

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

// versions joins the versions of the stores that report one. It asks all at once: one that
// does not answer leaves the others their time.
func versions(ctx context.Context, stores []driver.Driver) (string, error) {
	versions, errs := make([]string, len(stores)), make([]error, len(stores))
	var group sync.WaitGroup
	for i, d := range stores {
		v, ok := d.(driver.ServerVersioner)
		if !ok {
			errs[i] = driver.ErrUnsupported
			continue
		}
		group.Go(func() { versions[i], errs[i] = v.ServerVersion(ctx) })
	}
	group.Wait()
	var known []string
	for i, err := range errs {
		if err == nil {
			known = append(known, versions[i])
		}
	}
	if len(known) == 0 {
		return "", errors.Join(errs...)
	}
	return strings.Join(known, ", "), nil
}

package redlock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// ServerVersion implements driver.ServerVersioner: the versions of the nodes that
// answer, each once.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	versions, errs := make([]string, len(d.nodes)), make([]error, len(d.nodes))
	var group sync.WaitGroup
	for i, n := range d.nodes {
		group.Go(func() { versions[i], errs[i] = redisline.ServerVersion(ctx, n.client) })
	}
	group.Wait()
	versions = slices.DeleteFunc(versions, func(v string) bool { return v == "" })
	if len(versions) == 0 {
		return "", redisline.Unavailable(errors.Join(errs...))
	}
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), ", "), nil
}

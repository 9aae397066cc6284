package redis

import (
	"context"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// ServerVersion implements driver.ServerVersioner. On a Cluster it asks one of the
// servers.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	v, err := redisline.ServerVersion(ctx, d.client)
	return v, redisline.Unavailable(err)
}

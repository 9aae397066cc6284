package etcd

import (
	"context"
	"errors"

	"github.com/lockerproject/locker/driver"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// ServerVersion implements driver.ServerVersioner: that of the first member that
// answers.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	if d.ctx.Err() != nil {
		return "", driver.ErrClosed
	}
	var errs []error
	for _, endpoint := range d.client.Endpoints() {
		status, err := d.client.Status(ctx, endpoint)
		if err == nil {
			return "etcd " + status.Version, nil
		}
		errs = append(errs, err)
	}
	return "", d.explain(ctx, errors.Join(errs...))
}

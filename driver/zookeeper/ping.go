package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// Ping implements driver.Pinger: one transaction that creates a node and
// deletes it.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	if err := d.agree(ctx, false); err != nil {
		return err
	}
	_, err := write(ctx, d, func() (struct{}, error) { return struct{}{}, d.tryRights() })
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if _, err := call(ctx, d, func() (struct{}, error) { return struct{}{}, d.createPath(d.base) }); err != nil {
		return err
	}
	_, err = write(ctx, d, func() (struct{}, error) { return struct{}{}, d.tryRights() })
	return err
}

package zookeeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"
)

// Ping implements driver.Pinger: one transaction that creates a node and
// deletes it.
func (d *Driver) Ping(ctx context.Context) error {
	err := d.ping(ctx)
	if errors.Is(err, zk.ErrNoAuth) {
		return fmt.Errorf("the ACL of %s lacks a right of this client: it has to read it, and to create, write and delete nodes below: %w", d.base, err)
	}
	return err
}

func (d *Driver) ping(ctx context.Context) error {
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

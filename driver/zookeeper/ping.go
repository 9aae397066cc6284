package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// Ping implements driver.Pinger: one transaction that creates a node and deletes it.
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
	try := func() (struct{}, error) { return struct{}{}, d.tryRights() }
	_, err := write(ctx, d, try)
	if !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	if err := d.createBase(ctx); err != nil {
		return err
	}
	_, err = write(ctx, d, try)
	return err
}

// ServerVersion implements driver.ServerVersioner. It asks the server that the session
// is on for "srvr", one of its four-letter words, over a connection of its own without
// TLS.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	if err := d.ready(ctx); err != nil {
		return "", err
	}
	if err := d.connected(ctx); err != nil {
		return "", err
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", d.conn.Server())
	if err != nil {
		return "", err
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Now()) })
	defer stop()
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(c, 1<<16))
	_, after, ok := strings.Cut(string(text), "Zookeeper version: ")
	if !ok {
		return "", errors.Join(errors.New(`the server does not answer "srvr" (4lw.commands.whitelist)`), err)
	}
	version, _, _ := strings.Cut(after, "-") // 3.8.0-…, built on …
	return "ZooKeeper " + version, nil
}

package zookeeper

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// ServerVersion implements driver.ServerVersioner. It asks the server that the
// session is on for "srvr", one of its four-letter words, over a connection of its
// own without TLS.
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

package mysql

import (
	"context"
	"strings"

	"github.com/lockerproject/locker/driver"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	if d.ctx.Err() != nil {
		return "", driver.ErrClosed
	}
	var text string
	c, back, err := d.conn(ctx, d.db.Stats())
	if err == nil {
		err = c.QueryRowContext(ctx, "SELECT VERSION()").Scan(&text)
		back()
	}
	if err != nil {
		return "", d.failed(ctx, err)
	}
	name := "MySQL "
	if strings.Contains(text, "MariaDB") {
		name = "MariaDB "
		text = strings.TrimPrefix(text, "5.5.5-") // what it says to old replicas
	}
	text, _, _ = strings.Cut(text, "-") // -MariaDB-0+deb12u1
	return name + text, nil
}

package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
)

var _ driver.ServerVersioner = (*Driver)(nil)

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	var version string
	err := d.with(ctx, true, func(c *pgx.Conn) error {
		return c.QueryRow(ctx, "SHOW server_version", pgx.QueryExecModeSimpleProtocol).Scan(&version)
	})
	if err != nil {
		return "", d.failed(ctx, err)
	}
	version, _, _ = strings.Cut(version, " ") // (Debian 15.14-1.pgdg12+1)
	return "PostgreSQL " + version, nil
}

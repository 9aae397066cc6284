package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	queue, err := look(ctx, d, d.w.render("inspect", values{name: name}), func(rows *sql.Rows) (t driver.Ticket, err error) {
		var since, left int64
		err = rows.Scan(&t.Token, &t.ID, &t.Owner, &t.Note, &t.Shared, &t.Limit, &t.Held, &since, &left)
		t.Since = time.UnixMicro(since)
		if t.Held {
			t.Remaining = time.Duration(left) * time.Microsecond
		}
		return t, err
	})
	if err != nil {
		return nil, d.failed(ctx, err)
	}
	return slices.DeleteFunc(queue, func(t driver.Ticket) bool { return t.ID == "" }), nil // released while it was read
}

// List implements driver.Lister. It reads the whole table.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	names, err := d.names(ctx, "list")
	return names, d.failed(ctx, err)
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	h := driver.Hold{Name: name, Token: token}
	ids, err := look(ctx, d, d.w.render("numbered", valuesOfHold(h)), scanOne[string])
	if err != nil {
		return d.failed(ctx, err)
	}
	if len(ids) == 0 || ids[0] == "" {
		return driver.ErrLost
	}
	h.ID = ids[0]
	step, err := d.remove(ctx, h, false)
	if err != nil {
		return d.failed(ctx, err)
	}
	d.tidy(ctx, name, step, false)
	if step == "" {
		return driver.ErrLost
	}
	return nil
}

// Ping implements driver.Pinger: it sends statements that change nothing and need all
// rights that locks need. It creates the tables if they are missing.
func (d *Driver) Ping(ctx context.Context) error {
	for _, statement := range []string{"ping_slots", "ping_tickets", "ping_delete", "ping_tx", "ping_delete_tx"} {
		if _, err := d.exec(ctx, statement, values{}); err != nil {
			return d.failed(ctx, err)
		}
	}
	return nil
}

// ServerVersion implements driver.ServerVersioner.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	if d.ctx.Err() != nil {
		return "", driver.ErrClosed
	}
	found, err := queryOnce(ctx, d, "SELECT VERSION()", scanOne[string])
	if err != nil {
		return "", d.failed(ctx, err)
	}
	name, text := "MySQL ", found[0]
	if strings.Contains(text, "MariaDB") {
		name, text = "MariaDB ", strings.TrimPrefix(text, "5.5.5-") // a prefix for old replicas
	}
	text, _, _ = strings.Cut(text, "-") // -MariaDB-0+deb12u1
	return name + text, nil
}

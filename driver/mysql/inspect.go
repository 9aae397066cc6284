package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	var line []driver.Ticket
	err := d.query(ctx, d.w.render("inspect", values{name: name}), func(rows *sql.Rows) error {
		var (
			t           driver.Ticket
			since, left int64
		)
		err := rows.Scan(&t.Token, &t.ID, &t.Owner, &t.Note, &t.Shared, &t.Limit, &t.Held, &since, &left)
		t.Since = time.UnixMicro(since)
		if t.Held {
			t.Remaining = time.Duration(left) * time.Microsecond
		}
		if t.ID != "" { // it was not released meanwhile
			line = append(line, t)
		}
		return err
	})
	if err != nil {
		return nil, d.failed(ctx, err)
	}
	return line, nil
}

// List implements driver.Lister. It reads the whole table.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	names, err := d.names(ctx, "list")
	return names, d.failed(ctx, err)
}

func (d *Driver) names(ctx context.Context, statement string) (names []string, err error) {
	err = d.query(ctx, d.w.render(statement, values{most: batch}), func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		if name != "" {
			names = append(names, name)
		}
		return err
	})
	return names, err
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	h := driver.Hold{Name: name, Token: token}
	err := d.query(ctx, d.w.render("numbered", valuesOfHold(h)), func(rows *sql.Rows) error {
		return rows.Scan(&h.ID)
	})
	if err != nil {
		return d.failed(ctx, err)
	}
	if h.ID == "" {
		return driver.ErrLost
	}
	step, err := d.remove(ctx, h, false)
	if err != nil {
		return d.failed(ctx, err)
	}
	d.poller.nudge(name)
	switch step {
	case "":
		return driver.ErrLost
	case "vacate", "unqueue":
		d.tidyGate(ctx, name, false)
	case "end":
		d.buryEnded(ctx, name)
	}
	return nil
}

// Ping implements driver.Pinger: statements that change nothing, and need all the rights that locks
// do, of which the server names the one that is missing. It makes the tables if they are not there.
func (d *Driver) Ping(ctx context.Context) error {
	for _, statement := range []string{"pingslots", "pingwrite", "pingdelete", "pingtx", "pingdeletetx", "pingepochs"} {
		if _, err := d.exec(ctx, statement, values{}); err != nil {
			return d.failed(ctx, err)
		}
	}
	return nil
}

package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	var ts []driver.Ticket
	err := d.retry(ctx, true, func() error {
		ts = nil
		return d.query(ctx, true, nil, func(rows pgx.Rows) error {
			t, err := scanTicket(rows)
			ts = append(ts, t)
			return err
		}, d.w.inspect, []byte(name))
	})
	return ts, d.failed(ctx, err)
}

func scanTicket(rows pgx.Rows) (driver.Ticket, error) {
	var (
		t              driver.Ticket
		token, permits int64
		since, left    int64
		owner, note    []byte
	)
	err := rows.Scan(&t.ID, &token, &owner, &note, &t.Shared, &permits, &t.Held, &since, &left)
	t.Token = uint64(token) //nolint:gosec // the schema has them positive
	t.Owner, t.Note = string(owner), string(note)
	if permits != anyNumber {
		t.Limit = int(permits)
	}
	t.Since = time.UnixMicro(since)
	t.Remaining = time.Duration(left) * time.Microsecond
	return t, err
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	var names []string
	err := d.retry(ctx, true, func() error {
		names = nil
		return d.query(ctx, true, nil, func(rows pgx.Rows) error {
			var name []byte
			err := rows.Scan(&name)
			names = append(names, string(name))
			return err
		}, d.w.list)
	})
	return names, d.failed(ctx, err)
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if int64(token) <= 0 { //nolint:gosec // no ticket has such a number
		return driver.ErrLost
	}
	var rep reply
	err := d.retry(ctx, false, func() (err error) {
		rep, err = d.call(ctx, nil, d.w.breaks, []byte(name), int64(token), d.line.current()) //nolint:gosec // checked
		return err
	})
	if err != nil {
		d.line.missed()
		return d.failed(ctx, err)
	}
	if rep.words[0] == "l" {
		return driver.ErrLost
	}
	return nil
}

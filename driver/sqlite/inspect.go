package sqlite

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Inspect implements driver.Driver. It reads, and waits for nobody who writes.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	return ask(ctx, d.s, d.closing, reads, func(t *tx) (tickets []driver.Ticket, err error) {
		wall := time.Now().Round(0)
		err = t.rows(func(scan func(...any) error) (bool, error) {
			var v driver.Ticket
			var owner, note []byte
			var permits, since int64
			var state string
			var expires *int64
			err := scan(&v.Token, &v.ID, &owner, &note, &v.Shared, &permits, &state, &since, &expires)
			v.Owner, v.Note = string(owner), string(note)
			if v.Shared {
				v.Limit = limitOf(permits)
			}
			if expires != nil {
				v.Held, v.Remaining = true, time.Duration(*expires-t.now)
			}
			v.Since = wall.Add(time.Duration(since - t.now))
			tickets = append(tickets, v)
			return true, err
		}, sqlInspect, []byte(name), t.now)
		return tickets, err
	})
}

// List implements driver.Lister.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	return ask(ctx, d.s, d.closing, reads, func(t *tx) ([]string, error) { return t.names(sqlList, t.now) })
}

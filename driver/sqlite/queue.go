package sqlite

import (
	"cmp"
	"context"
	"errors"
	"time"

	codes "modernc.org/sqlite/lib"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// These are the requests of the engine: each is one transaction.

var (
	_ sqlqueue.Store    = (*store)(nil)
	_ sqlqueue.Notifier = (*store)(nil)
)

// Take implements sqlqueue.Store. It needs no deadline, since the transactions of a process are executed in order.
func (s *store) Take(ctx context.Context, process int64, r driver.Request, _ func() int64) (sqlqueue.Answer, error) {
	if err := context.Cause(ctx); err != nil {
		return sqlqueue.Answer{}, err // it was not sent
	}
	sent := time.Now()
	a, err := run(ctx, s, takes.of(process), func(t *tx) (sqlqueue.Answer, error) {
		n, token, err := t.count(sqlTakeFree, append(t.held(r), schemaVersion, s.boot)...)
		if err == nil && n == 1 {
			return sqlqueue.Answer{Result: sqlqueue.Granted, Token: uint64(token)}, nil //nolint:gosec // AUTOINCREMENT begins at 1
		}
		if err == nil || code(err) == codes.SQLITE_FULL { // tokens may be used up, which is not to be said of a lock that is held
			err = t.start()
		}
		if err != nil {
			return sqlqueue.Answer{}, err
		}
		a, err := t.take(r)
		a.Grants = t.grants
		return a, err
	})
	a.Sent = sent
	return a, err
}

// take takes a ticket of a name that others use.
func (t *tx) take(r driver.Request) (a sqlqueue.Answer, err error) {
	if own, found, err := t.findID(r.Name, r.ID); err != nil || found { // a repeated request
		if err == nil && own.Held {
			return sqlqueue.Answer{Result: sqlqueue.Granted, Token: own.Token}, t.exec(sqlRenew, t.after(r.TTL), own.Token)
		}
		q, err2 := t.head(r.Name, 1)
		return sqlqueue.Answer{Result: sqlqueue.Queued, Due: t.due(q)}, cmp.Or(err, err2)
	}
	q, err := t.head(r.Name, sqlqueue.Permits(r.Limit))
	if err != nil {
		return a, err
	}
	if driver.Grantable(append(shownAs(q), r.Ticket(0)), len(q)) {
		_, token, err := t.count(sqlInsert, t.held(r)...)
		return sqlqueue.Answer{Result: sqlqueue.Granted, Token: uint64(token)}, err //nolint:gosec // as above
	}
	if !r.Wait {
		return sqlqueue.Answer{Result: sqlqueue.Refused}, nil // nothing was written (D6)
	}
	if known, err := t.row([]any{new(int64)}, sqlProcess, t.process); err != nil || !known {
		return sqlqueue.Answer{Result: sqlqueue.Unregistered}, err
	}
	return sqlqueue.Answer{Result: sqlqueue.Queued, Due: t.due(q)},
		t.exec(sqlInsert, t.values(r, nil, "waiting", nil)...)
}

// held returns the values of a row for a ticket that is granted at once.
func (t *tx) held(r driver.Request) []any {
	return t.values(r, slotOf(r.Shared), "held", t.after(r.TTL))
}

func (t *tx) values(r driver.Request, slot any, state string, expires any) []any {
	return []any{
		[]byte(r.Name), slot, r.ID, t.process, []byte(r.Owner), []byte(r.Note),
		r.Shared, sqlqueue.Permits(r.Limit), bounded(r.TTL), state, t.now, expires,
	}
}

// Remove implements sqlqueue.Store.
func (s *store) Remove(ctx context.Context, process int64, h driver.Hold) (sqlqueue.Removal, error) {
	return run(ctx, s, removes.of(process), func(t *tx) (r sqlqueue.Removal, err error) {
		if !h.Shared {
			n, _, err := t.count(sqlRemoveAlone, []byte(h.Name), h.ID, t.now, schemaVersion, s.boot)
			if err != nil || n == 1 {
				return sqlqueue.Removal{Found: n == 1}, err
			}
		}
		if err := t.start(); err != nil {
			return r, err
		}
		tk, found, err := t.findID(h.Name, h.ID)
		return t.remove(h.Name, tk, found, err)
	})
}

// Break implements sqlqueue.Store.
func (s *store) Break(ctx context.Context, process int64, name string, token uint64) (sqlqueue.Removal, error) {
	return run(ctx, s, writes.of(process), func(t *tx) (sqlqueue.Removal, error) {
		tk, found, err := t.find(sqlFindToken, int64(token), []byte(name)) //nolint:gosec // the engine has checked it
		if found {
			t.notify(tk.process, sqlqueue.LostText(driver.Hold{Name: name, ID: tk.ID, Token: tk.Token}))
		}
		return t.remove(name, tk, found, err)
	})
}

// remove removes a ticket if it was found, and grants the next.
func (t *tx) remove(name string, tk ticket, found bool, err error) (sqlqueue.Removal, error) {
	if err == nil && found {
		err = cmp.Or(t.exec(sqlDelete, tk.Token), t.settle(name))
	}
	return sqlqueue.Removal{Found: found, Grants: t.grants}, err
}

// Renew implements sqlqueue.Store.
func (s *store) Renew(ctx context.Context, rs []driver.Renewal) ([]int, error) {
	return run(ctx, s, writes, func(t *tx) (renewed []int, err error) {
		for i, r := range rs {
			held, err := t.holds(r.Hold)
			if held {
				renewed = append(renewed, i)
				err = t.exec(sqlRenew, t.after(r.TTL), int64(r.Token)) //nolint:gosec // a ticket has it
			}
			if err != nil {
				return nil, err
			}
		}
		return renewed, nil
	})
}

// Shorten implements sqlqueue.Store.
func (s *store) Shorten(ctx context.Context, h driver.Hold, left time.Duration) (bool, error) {
	return run(ctx, s, writes, func(t *tx) (bool, error) {
		held, err := t.holds(h)
		if !held {
			return false, err
		}
		var first int64
		waits, err := t.row([]any{&first}, sqlFirst, []byte(h.Name))
		if waits {
			t.notify(first, sqlqueue.DueText(h.Name))
		}
		return true, cmp.Or(err, t.exec(sqlShorten, t.after(left), int64(h.Token))) //nolint:gosec // a ticket has it
	})
}

// Heartbeat implements sqlqueue.Store.
func (s *store) Heartbeat(ctx context.Context, process int64, life time.Duration, create bool) (sqlqueue.Heartbeat, error) {
	sent := time.Now()
	h, err := run(ctx, s, writes, func(t *tx) (h sqlqueue.Heartbeat, err error) {
		n, _, err := t.count(sqlHeartbeat, t.after(life), process)
		if err == nil && n == 0 && create {
			err = t.exec(sqlRegister, process, t.after(life))
		}
		if err == nil {
			_, err = t.row([]any{&h.Number}, sqlProcess, process)
		}
		if err == nil {
			h.Tickets, err = t.mine(sqlProvisional, process)
		}
		return h, err
	})
	h.Sent = sent
	return h, err
}

// Mine implements sqlqueue.Store.
func (s *store) Mine(ctx context.Context, process int64, all bool) (m sqlqueue.Mine, err error) {
	m.Sent = time.Now()
	query := sqlProvisional
	if all {
		query = sqlMine
	}
	m.Tickets, err = run(ctx, s, looks, func(t *tx) ([]sqlqueue.Ticket, error) { return t.mine(query, process) })
	return m, err
}

// mine returns the tickets of a process that a query finds.
func (t *tx) mine(query string, process int64) (tickets []sqlqueue.Ticket, err error) {
	err = t.rows(func(scan scanner) (bool, error) {
		var tk sqlqueue.Ticket
		var state string
		var expires *int64
		err := scan(&tk.Token, &tk.ID, &state, &expires)
		tk.Held = state != "waiting"
		if expires != nil {
			tk.Left = time.Duration(*expires - t.now)
		}
		tickets = append(tickets, tk)
		return true, err
	}, query, process)
	return tickets, err
}

// Leave implements sqlqueue.Store.
func (s *store) Leave(ctx context.Context, process int64) error {
	_, err := run(ctx, s, leaves, func(t *tx) (struct{}, error) {
		names, err := t.names(sqlLeaveTickets, process)
		return struct{}{}, cmp.Or(err, t.exec(sqlLeave, process), t.settle(names...))
	})
	return err
}

// Due implements sqlqueue.Store.
func (s *store) Due(ctx context.Context, process int64, names []string) ([]sqlqueue.Due, error) {
	return run(ctx, s, looks, func(t *tx) ([]sqlqueue.Due, error) {
		due := make([]sqlqueue.Due, len(names))
		for i, name := range names {
			q, err := t.head(name, 1)
			if err != nil {
				return nil, err
			}
			var first int64
			waits, err := t.row([]any{&first}, sqlFirst, []byte(name))
			if err != nil {
				return nil, err
			}
			due[i] = sqlqueue.Due{In: t.due(q), First: waits && first == process}
		}
		return due, nil
	})
}

// Advance implements sqlqueue.Store: what has expired is removed at the beginning of the transaction.
func (s *store) Advance(ctx context.Context, process int64, name string) ([]sqlqueue.Grant, error) {
	return run(ctx, s, writes.of(process), func(t *tx) ([]sqlqueue.Grant, error) {
		err := t.settle(name)
		return t.grants, err
	})
}

// Sweep implements sqlqueue.Store: as Advance, everywhere.
func (s *store) Sweep(ctx context.Context, _ string) (string, int64, error) {
	_, err := run(ctx, s, writes, func(*tx) (struct{}, error) { return struct{}{}, nil })
	return "", 0, err
}

// SweepTurn implements sqlqueue.Store. Every process may sweep: that costs as much as to ask whose turn it is.
func (s *store) SweepTurn(context.Context, time.Duration, bool) (time.Duration, error) { return 0, nil }

// Queue implements sqlqueue.Store. It reads, and waits for no other process.
func (s *store) Queue(ctx context.Context, name string) ([]driver.Ticket, error) {
	return run(ctx, s, reads, func(t *tx) ([]driver.Ticket, error) { return t.show(name) })
}

// Names implements sqlqueue.Store.
func (s *store) Names(ctx context.Context) ([]string, error) {
	return run(ctx, s, reads, func(t *tx) ([]string, error) { return t.names(sqlList, t.now) })
}

// Class implements sqlqueue.Store. The store itself sends again what is worth it.
func (*store) Class(err error) sqlqueue.Class {
	if errors.Is(err, errAbsent) {
		return sqlqueue.Undone | sqlqueue.Missing
	}
	return 0
}

// Tables implements sqlqueue.Store: where some are missing, there is no database.
func (*store) Tables(context.Context) (none sqlqueue.Tables, err error) { return none, err }

// Create implements sqlqueue.Store.
func (s *store) Create(ctx context.Context) error {
	_, err := run(ctx, s, makes, func(*tx) (struct{}, error) { return struct{}{}, nil })
	return err
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// These are the requests of the engine: each is a call of a function of the schema.

var (
	_ sqlqueue.Store    = (*store)(nil)
	_ sqlqueue.Notifier = (*store)(nil)
)

// Take implements sqlqueue.Store.
func (s *store) Take(ctx context.Context, process int64, r driver.Request, until func() int64) (a sqlqueue.Answer, err error) {
	var text string
	text, a.Grants, err = s.call(ctx, sending{sent: &a.Sent, until: until}, s.w.acquire, []byte(r.Name), r.ID, process, r.Shared, sqlqueue.Permits(r.Limit),
		sqlqueue.Micros(r.TTL), r.Wait, []byte(r.Owner), []byte(r.Note))
	if err != nil {
		return a, err
	}
	var due int64
	switch {
	case sqlqueue.Scan(text, "g %d", &a.Token):
		a.Result = sqlqueue.Granted
	case text == "n":
		a.Result = sqlqueue.Refused
	case sqlqueue.Scan(text, "w %d", &due):
		a.Result, a.Due = sqlqueue.Queued, time.Duration(due)*time.Microsecond
	case sqlqueue.Scan(text, "t %d", &a.Now):
		a.Result = sqlqueue.Late
	case text == "p":
		a.Result = sqlqueue.Unregistered
	default:
		err = errReply
	}
	return a, err
}

// lockTimeout is how long a removal waits for a lock of the database at a time. A client that gives up before the server
// does breaks the connection: when hundreds leave a queue at once, what it takes to open as many new ones keeps the server
// from the removals.
const lockTimeout = 700 * time.Millisecond

// errBusy says that a removal may not wait for another lockTimeout.
var errBusy = errors.New("the queue is in use")

// Remove implements sqlqueue.Store.
func (s *store) Remove(ctx context.Context, process int64, h driver.Hold) (sqlqueue.Removal, error) {
	return s.remove(ctx, s.w.release, []byte(h.Name), h.ID, process)
}

// Break implements sqlqueue.Store.
func (s *store) Break(ctx context.Context, process int64, name string, token uint64) (sqlqueue.Removal, error) {
	return s.remove(ctx, s.w.breaks, []byte(name), int64(token), process) //nolint:gosec // the engine has checked it
}

func (s *store) remove(ctx context.Context, sql string, args ...any) (sqlqueue.Removal, error) {
	text, grants, err := s.call(ctx, sending{}, sql, args...)
	if end, ok := ctx.Deadline(); ok && time.Until(end) < lockTimeout && code(err) == codeLockTimeout {
		err = fmt.Errorf("%w: %w", errBusy, err)
	}
	return sqlqueue.Removal{Found: text != "l", Grants: grants}, err
}

// Renew implements sqlqueue.Store.
func (s *store) Renew(ctx context.Context, rs []driver.Renewal) (renewed []int, err error) {
	var (
		names         = make([][]byte, len(rs))
		slots, tokens = make([]int64, len(rs)), make([]int64, len(rs))
		ids           = make([]string, len(rs))
		ttls          = make([]int64, len(rs))
	)
	for i, r := range rs {
		names[i], ids[i], ttls[i] = []byte(r.Name), r.ID, sqlqueue.Micros(r.TTL)
		slots[i], tokens[i] = slot(r.Hold), int64(r.Token) //nolint:gosec // tokens are bigints
	}
	renewed, err = query(ctx, s, sending{}, pgx.RowTo[int], s.w.renew, names, slots, tokens, ids, ttls)
	for i := range renewed {
		renewed[i]--
	}
	return renewed, err
}

// Shorten implements sqlqueue.Store.
func (s *store) Shorten(ctx context.Context, h driver.Hold, left time.Duration) (held bool, err error) {
	found, err := query(ctx, s, sending{notifies: true}, pgx.RowTo[bool], s.w.shorten, []byte(h.Name), int64(h.Token), h.ID, sqlqueue.Micros(left)) //nolint:gosec // tokens are bigints
	return len(found) == 1 && found[0], err
}

// Heartbeat implements sqlqueue.Store.
func (s *store) Heartbeat(ctx context.Context, process int64, life time.Duration, create bool) (h sqlqueue.Heartbeat, err error) {
	h.Number, h.Mine, err = s.mine(ctx, s.w.heartbeat, process, sqlqueue.Micros(life), create)
	return h, err
}

// Mine implements sqlqueue.Store.
func (s *store) Mine(ctx context.Context, process int64, all bool) (m sqlqueue.Mine, err error) {
	sql := s.w.provisional
	if all {
		sql = s.w.queued
	}
	_, m, err = s.mine(ctx, sql, process)
	return m, err
}

// mine reads a number, and tickets beside it.
func (s *store) mine(ctx context.Context, sql string, args ...any) (number int64, m sqlqueue.Mine, err error) {
	m.Tickets, err = query(ctx, s, sending{sent: &m.Sent}, rowTicket(&number), sql, args...)
	if len(m.Tickets) > 0 && m.Tickets[0].ID == "" { // there is a number, and no ticket
		m.Tickets = nil
	}
	return number, m, err
}

// rowTicket reads a number, and the ticket beside it. The ticket's ID is empty if there is none.
func rowTicket(number *int64) pgx.RowToFunc[sqlqueue.Ticket] {
	return func(row pgx.CollectableRow) (t sqlqueue.Ticket, err error) {
		var (
			id          *string
			token, left *int64
			held        *bool
		)
		if err := row.Scan(number, &id, &token, &held, &left); err != nil || id == nil {
			return t, err
		}
		t = sqlqueue.Ticket{ID: *id, Token: uint64(*token), Held: *held} //nolint:gosec // the schema has them positive
		if left != nil {
			t.Left = time.Duration(*left) * time.Microsecond
		}
		return t, nil
	}
}

// Leave implements sqlqueue.Store.
func (s *store) Leave(ctx context.Context, process int64) error {
	_, err := query(ctx, s, sending{}, pgx.RowTo[int], s.w.leave, process)
	return err
}

// Due implements sqlqueue.Store.
func (s *store) Due(ctx context.Context, process int64, names []string) ([]sqlqueue.Due, error) {
	args := make([][]byte, len(names))
	for i, n := range names {
		args[i] = []byte(n)
	}
	due := make([]sqlqueue.Due, len(names))
	_, err := query(ctx, s, sending{}, func(row pgx.CollectableRow) (struct{}, error) {
		var i, micros int64
		var first bool
		err := row.Scan(&i, &micros, &first)
		if err == nil && (i < 1 || i > int64(len(due))) {
			err = errReply
		}
		if err == nil {
			due[i-1] = sqlqueue.Due{In: time.Duration(micros) * time.Microsecond, First: first}
		}
		return struct{}{}, err
	}, s.w.due, args, process)
	return due, err
}

// Advance implements sqlqueue.Store.
func (s *store) Advance(ctx context.Context, process int64, name string) ([]sqlqueue.Grant, error) {
	_, grants, err := s.call(ctx, sending{}, s.w.advance, []byte(name), process)
	return grants, err
}

// sweepMost is the number of queues that one request sweeps.
const sweepMost = 100

// Sweep implements sqlqueue.Store.
func (s *store) Sweep(ctx context.Context, after string) (last string, busy int64, err error) {
	_, err = query(ctx, s, sending{}, func(row pgx.CollectableRow) (struct{}, error) {
		var name []byte // nil: there are no more
		err := row.Scan(&name, &busy)
		last = string(name)
		return struct{}{}, err
	}, s.w.sweep, []byte(after), sweepMost)
	return last, busy, err
}

// SweepTurn implements sqlqueue.Store.
func (s *store) SweepTurn(ctx context.Context, life time.Duration, done bool) (left time.Duration, err error) {
	micros, err := query(ctx, s, sending{}, pgx.RowTo[int64], s.w.sweeper, sqlqueue.Micros(life), done)
	if err != nil {
		return 0, err
	}
	return time.Duration(micros[0]) * time.Microsecond, nil
}

// Queue implements sqlqueue.Store.
func (s *store) Queue(ctx context.Context, name string) ([]driver.Ticket, error) {
	tickets, err := query(ctx, s, sending{}, rowInspected, s.w.inspect, []byte(name))
	switch code(err) {
	case "0A000", "22003", "22008": // infinity has no number of seconds
		err = fmt.Errorf("a time in the row of a ticket is infinite or out of range (only what is written by hand is): %w", err)
	}
	return tickets, err
}

func rowInspected(row pgx.CollectableRow) (t driver.Ticket, err error) {
	var token, permits, since, left int64
	var owner, note []byte
	err = row.Scan(&t.ID, &token, &owner, &note, &t.Shared, &permits, &t.Held, &since, &left)
	t.Token = uint64(token) //nolint:gosec // the schema has them positive
	t.Owner, t.Note, t.Limit = string(owner), string(note), sqlqueue.Limit(permits)
	t.Since = time.UnixMicro(since)
	t.Remaining = time.Duration(left) * time.Microsecond
	return t, err
}

// Names implements sqlqueue.Store.
func (s *store) Names(ctx context.Context) ([]string, error) {
	return query(ctx, s, sending{}, func(row pgx.CollectableRow) (string, error) {
		name, err := pgx.RowTo[[]byte](row)
		return string(name), err
	}, s.w.list)
}

// call runs a function of the schema. It returns the first line of its answer, and the grants in the others.
func (s *store) call(ctx context.Context, how sending, sql string, args ...any) (string, []sqlqueue.Grant, error) {
	how.notifies = true
	texts, err := query(ctx, s, how, pgx.RowTo[string], sql, args...)
	if err == nil && len(texts) != 1 {
		err = errReply
	}
	if err != nil {
		return "", nil, err
	}
	return parseReply(texts[0])
}

// slot returns the slot of the row of a held ticket.
func slot(h driver.Hold) int64 {
	if h.Shared {
		return int64(h.Token) //nolint:gosec // tokens are bigints
	}
	return 0
}

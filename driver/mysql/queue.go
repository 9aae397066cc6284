package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// These are the requests of the engine. Each is one statement, or a call of a procedure: see procedures.sql.

var (
	_ sqlqueue.Store    = (*store)(nil)
	_ sqlqueue.Notifier = (*store)(nil)
)

// Take implements sqlqueue.Store. The name may be free, unless this process waits for something.
func (s *store) Take(ctx context.Context, process int64, r driver.Request, until func() int64) (a sqlqueue.Answer, err error) {
	start := s.start.Load()
	isLate := func() bool { return start == 0 || until() == 0 }
	v := valuesOf(r.Name, r.ID).with(values{
		"process": process, "owner": r.Owner, "note": r.Note, "shared": r.Shared, "permits": r.Limit, "ttl": r.TTL, "mark": r.Wait,
		"deadline": until, "start": start,
	})
	d := done{}
	if !s.waits() && !isLate() {
		a.Sent = time.Now()
		d, err = s.takeFree(ctx, v, r.Wait)
	}
	if err == nil && d.what == doneNothing {
		if isLate() {
			return s.late(ctx, false)
		}
		a.Sent = time.Now()
		d, err = s.call(ctx, "take_call", v)
	}
	a.Grants = d.grants
	switch d.what {
	case doneIt:
		a.Result, a.Token = sqlqueue.Granted, uint64(d.number) //nolint:gosec // AUTO_INCREMENT is positive
	case doneQueued:
		if a.Result, a.Due = sqlqueue.Queued, time.Duration(d.number)*time.Microsecond; a.Due <= 0 {
			a.Due = -1
		}
	case doneRefused:
		a.Result = sqlqueue.Refused
	case doneUnknown:
		a.Result = sqlqueue.Unregistered
	case doneLate, doneNoSlot:
		return s.late(ctx, d.what == doneNoSlot)
	case doneOutlived:
		err = errChanged
	}
	return a, err
}

// waits reports whether this process waits for something, or has until a while ago.
func (s *store) waits() bool { return s.listening.Load().connection != 0 }

// takeFree takes a ticket if the name is free, and refuses it behind an exclusive holder if it does not wait.
func (s *store) takeFree(ctx context.Context, v values, wait bool) (d done, err error) {
	switch _, key, err := s.exec(ctx, "take", v); {
	case code(err) == errNull || code(err) == errDuplicate:
	case err != nil:
		return d, err
	case key >= 1<<32:
		d = done{what: doneIt, number: key}
	case key > 0 && !wait:
		d.what = doneRefused
	}
	return d, nil
}

// late returns the answer to a request that arrived too late, or at another server than it was meant for, or did not find
// the row of its slot. Then nothing was sent that may still arrive.
func (s *store) late(ctx context.Context, noSlot bool) (sqlqueue.Answer, error) {
	if noSlot {
		if err := s.fillSlots(ctx); err != nil {
			return sqlqueue.Answer{}, err
		}
	}
	now, err := s.readServer(ctx)
	return sqlqueue.Answer{Result: sqlqueue.Late, Now: now}, err
}

// Remove implements sqlqueue.Store. Nobody may wait for the name, unless this process waits for something.
func (s *store) Remove(ctx context.Context, process int64, h driver.Hold) (r sqlqueue.Removal, err error) {
	v := valuesOf(h.Name, h.ID).with(values{"process": process, "token": 0})
	if !s.waits() {
		if n, _, err := s.exec(ctx, "release", v); err != nil || n > 0 {
			return sqlqueue.Removal{Found: n > 0}, err
		}
	}
	return s.removal(ctx, v)
}

// Break implements sqlqueue.Store.
func (s *store) Break(ctx context.Context, process int64, name string, token uint64) (sqlqueue.Removal, error) {
	return s.removal(ctx, valuesOf(name, "").with(values{"process": process, "token": token}))
}

func (s *store) removal(ctx context.Context, v values) (sqlqueue.Removal, error) {
	d, err := s.call(ctx, "remove_call", v)
	return sqlqueue.Removal{Found: d.what == doneIt, Grants: d.grants}, err
}

// batch is how many leases one statement renews.
const batch = 500

// Renew implements sqlqueue.Store: one statement for each 500 leases of one TTL.
func (s *store) Renew(ctx context.Context, rs []driver.Renewal) (renewed []int, err error) {
	order := make([]int, len(rs)) // by TTL, then by name, so that no two batches wait for each other
	for i := range rs {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rs[a].TTL, rs[b].TTL), cmp.Compare(rs[a].Name, rs[b].Name), cmp.Compare(rs[a].ID, rs[b].ID))
	})
	for len(order) > 0 {
		n := 1
		for n < min(batch, len(order)) && rs[order[n]].TTL == rs[order[0]].TTL {
			n++
		}
		some, err := s.renewSome(ctx, rs, order[:n])
		if err != nil {
			return nil, err
		}
		renewed, order = append(renewed, some...), order[n:]
	}
	return renewed, nil
}

func (s *store) renewSome(ctx context.Context, rs []driver.Renewal, which []int) ([]int, error) {
	holds := make([]driver.Hold, len(which))
	for i, of := range which {
		holds[i] = rs[of].Hold
	}
	held, err := s.changeLeases(ctx, "renew", rs[which[0]].TTL, holds...)
	slices.Sort(held)
	return slices.DeleteFunc(slices.Clone(which), func(i int) bool {
		_, found := slices.BinarySearch(held, rs[i].Token)
		return !found
	}), err
}

// changeLeases sends a statement that changes leases, and returns the tokens of the tickets whose leases have not ended. A row that
// did not change may have a lease that is as long, or as short, already. It is read on the same connection: that of another one may
// be to a server that was demoted, where rows are old.
func (s *store) changeLeases(ctx context.Context, statement string, ttl time.Duration, holds ...driver.Hold) (held []uint64, err error) {
	v := valuesOfHeld(ttl, holds...)
	err = s.send(ctx, func(ctx context.Context, c *sql.Conn) error {
		var n int64
		r, err := c.ExecContext(ctx, s.w.render(statement, v))
		if err == nil {
			n, err = r.RowsAffected()
		}
		if held = v["seqs"].([]uint64); err != nil || n == int64(len(held)) {
			return err
		}
		rows, err := c.QueryContext(ctx, s.w.render("renewed", v))
		held, err = scanAll(rows, err, scanOne[uint64])
		return err
	})
	return held, err
}

// valuesOfHeld has the values of tickets that are held, and of their leases. A ticket may be an anchor or, if it is shared,
// another row.
func valuesOfHeld(ttl time.Duration, holds ...driver.Hold) values {
	var entries, ids, names []string
	var seqs []uint64
	for _, h := range holds {
		entries, ids, seqs, names = append(entries, h.Name), append(ids, h.ID), append(seqs, h.Token), append(names, h.Name)
		if h.Shared {
			entries = append(entries, entryOf(h.ID))
		}
	}
	return values{"ttl": ttl, "entries": entries, "ids": ids, "seqs": seqs, "names": names}
}

// Shorten implements sqlqueue.Store.
func (s *store) Shorten(ctx context.Context, h driver.Hold, left time.Duration) (bool, error) {
	held, err := s.changeLeases(ctx, "shorten", left, h)
	if err != nil || len(held) == 0 {
		return false, err
	}
	first, err := query(ctx, s, s.w.render("first", valuesOf(h.Name, "")), scanOne[int64])
	if err == nil && len(first) > 0 {
		_, _, _ = s.exec(ctx, "wake_call", values{"process": first[0]})
	}
	return true, nil // without a notice the waiter asks soon
}

// Heartbeat implements sqlqueue.Store.
func (s *store) Heartbeat(ctx context.Context, process int64, life time.Duration, create bool) (h sqlqueue.Heartbeat, err error) {
	l := s.listening.Load()
	v := values{"process": process, "ttl": life, "start": l.server, "connection": l.connection}
	statement := "heartbeat"
	if create {
		statement = "register"
	}
	h.Sent = time.Now()
	_, h.Number, err = s.exec(ctx, statement, v)
	if err == nil && h.Number > 0 { // also while it is woken: the connection that sleeps may be broken without notice
		var m sqlqueue.Mine
		m, err = s.Mine(ctx, process, false)
		h.Tickets = m.Tickets // Sent is the heartbeat's: leases count from it
	}
	return h, err
}

// Mine implements sqlqueue.Store.
func (s *store) Mine(ctx context.Context, process int64, all bool) (m sqlqueue.Mine, err error) {
	m.Sent = time.Now()
	m.Tickets, err = query(ctx, s, s.w.render("mine", values{"process": process, "mark": all}), func(rows *sql.Rows) (t sqlqueue.Ticket, err error) {
		var left int64
		err = rows.Scan(&t.Token, &t.ID, &t.Held, &left)
		t.Left = time.Duration(left) * time.Microsecond
		return t, err
	})
	return m, err
}

// Leave implements sqlqueue.Store.
func (s *store) Leave(ctx context.Context, process int64) error {
	_, _, err := s.exec(ctx, "depart", values{"process": process})
	return err
}

// dueNames is how many queues one statement reads.
const dueNames = 100

// Due implements sqlqueue.Store.
func (s *store) Due(ctx context.Context, process int64, names []string) ([]sqlqueue.Due, error) {
	due := make([]sqlqueue.Due, len(names))
	for from := 0; from < len(names); from += dueNames {
		var queries []string
		for i, name := range names[from:min(from+dueNames, len(names))] {
			queries = append(queries, s.w.render("due", values{"name": name, "key": from + i, "process": process}))
		}
		_, err := query(ctx, s, strings.Join(queries, " UNION ALL "), func(rows *sql.Rows) (none struct{}, err error) {
			var i, micros int64
			var first bool
			if err = rows.Scan(&i, &micros, &first); err == nil {
				due[i] = sqlqueue.Due{In: time.Duration(micros) * time.Microsecond, First: first}
			}
			return none, err
		})
		if err != nil {
			return nil, err
		}
	}
	return due, nil
}

// Advance implements sqlqueue.Store.
func (s *store) Advance(ctx context.Context, process int64, name string) ([]sqlqueue.Grant, error) {
	v := valuesOf(name, "").with(values{"process": process, "mark": false})
	d, err := s.call(ctx, "advance_call", v)
	if err == nil && d.what == doneNoSlot {
		err = s.fillSlots(ctx) // it is due again
	}
	return d.grants, err
}

// Queue implements sqlqueue.Store.
func (s *store) Queue(ctx context.Context, name string) ([]driver.Ticket, error) {
	return query(ctx, s, s.w.render("inspect", valuesOf(name, "")), func(rows *sql.Rows) (t driver.Ticket, err error) {
		var since, left int64
		err = rows.Scan(&t.Token, &t.ID, &t.Owner, &t.Note, &t.Shared, &t.Limit, &t.Held, &since, &left)
		t.Since = time.UnixMicro(since)
		if t.Held {
			t.Remaining = time.Duration(left) * time.Microsecond
		}
		return t, err
	})
}

// Names implements sqlqueue.Store. It reads the whole table.
func (s *store) Names(ctx context.Context) ([]string, error) {
	return query(ctx, s, s.w.render("list", nil), scanOne[string])
}

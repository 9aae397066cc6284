package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// These are the requests of the engine. What happens most is one statement, and the rest is a turn: see grant.go.

var (
	_ sqlqueue.Store    = (*store)(nil)
	_ sqlqueue.Notifier = (*store)(nil)
)

// Take implements sqlqueue.Store. The name may be free, unless this process waits for something.
func (s *store) Take(ctx context.Context, process int64, r driver.Request, until func() int64) (a sqlqueue.Answer, err error) {
	t := &taking{s: s, v: values{Request: r, process: process, mark: r.Wait, start: s.start.Load()}, until: until}
	what := done{}
	if !s.waits() {
		what, err = t.insert(ctx)
	}
	if err == nil && what.what == doneNothing {
		what, err = t.call(ctx)
	}
	a.Sent = t.sent
	if err == nil && what.what == doneNothing {
		a, err = t.turn(ctx)
	} else if err == nil {
		a, err = what.answer(a), what.late()
	}
	if errors.Is(err, errLate) || errors.Is(err, errNoSlot) {
		return s.late(ctx, err)
	}
	return a, err
}

// waits reports whether this process waits for something, or has until a while ago.
func (s *store) waits() bool { return s.listening.Load().connection != 0 && !s.plain.Load() }

// taking is a request for a ticket.
type taking struct {
	s     *store
	v     values
	until func() int64
	sent  time.Time // before the last statement
}

// ready is called before a statement is sent.
func (t *taking) ready() error {
	if t.v.deadline = t.until(); t.v.deadline == 0 || t.v.start == 0 {
		return errLate
	}
	t.sent = time.Now()
	return nil
}

// insert takes the ticket if the name is free, and refuses it behind an exclusive holder if it does not wait.
func (t *taking) insert(ctx context.Context) (d done, err error) {
	if err := t.ready(); err != nil {
		return d, err
	}
	switch key, err := t.s.insert(ctx, "take", t.v); {
	case code(err) == errNull || code(err) == errDuplicate:
	case err != nil:
		return d, err
	case key >= 1<<32:
		d = done{what: doneGranted, number: key}
	case key > 0 && !t.v.Wait:
		d.what = doneRefused
	}
	return d, nil
}

func (t *taking) call(ctx context.Context) (d done, err error) {
	if err := t.ready(); err != nil {
		return d, err
	}
	return t.s.call(ctx, "take_call", t.v)
}

func (t *taking) turn(ctx context.Context) (a sqlqueue.Answer, err error) {
	t.v.deadline = t.until()
	a.Sent = time.Now()
	a.Grants, err = t.s.turn(ctx, t.v.process, t.v.Name, false, func(q *turn) (err error) {
		if q.now > t.v.deadline || !q.here {
			return errLate
		}
		a, err = q.take(t.v, sqlqueue.Answer{Sent: a.Sent})
		return err
	})
	return a, err
}

// answer is the answer to a request for a ticket.
func (d done) answer(a sqlqueue.Answer) sqlqueue.Answer {
	switch d.what {
	case doneGranted:
		return granted(a, d.number)
	case doneQueued:
		a.Result, a.Due = sqlqueue.Queued, time.Duration(d.number)*time.Microsecond
	case doneRefused:
		a.Result = sqlqueue.Refused
	case doneUnregistered:
		a.Result = sqlqueue.Unregistered
	}
	return a
}

func (d done) late() error {
	if d.what == doneLate {
		return errLate
	}
	return nil
}

func granted(a sqlqueue.Answer, token int64) sqlqueue.Answer {
	a.Result, a.Token = sqlqueue.Granted, uint64(token) //nolint:gosec // AUTO_INCREMENT is positive
	return a
}

// late returns the answer to a request that arrived too late, or at another server than it was meant for. Then nothing
// was sent that may still arrive.
func (s *store) late(ctx context.Context, why error) (sqlqueue.Answer, error) {
	if errors.Is(why, errNoSlot) {
		if err := s.fillSlots(ctx); err != nil {
			return sqlqueue.Answer{}, err
		}
	}
	now, err := s.readServer(ctx)
	return sqlqueue.Answer{Result: sqlqueue.Late, Now: now}, err
}

// take takes a ticket of a queue that is locked.
func (t *turn) take(v values, a sqlqueue.Answer) (sqlqueue.Answer, error) {
	q, err := t.queue(nothing)
	if err == nil {
		q, err = t.settle(q, nil)
	}
	if err != nil {
		return a, err
	}
	if own, err := t.own(q, v.ID); err != nil || len(own) > 0 { // a repeated request
		if err == nil && own[0].Held {
			return t.renew(own[0], v.TTL, a)
		}
		a.Result, a.Due = sqlqueue.Queued, dueIn(q)
		return a, err
	}
	grantable := driver.Grantable(append(shownAs(q), v.Ticket(0)), len(q))
	if !grantable && !v.Wait {
		a.Result = sqlqueue.Refused
		return a, nil
	}
	if !grantable {
		alive, err := rowsOf(t, "alive", v, scanOne[int])
		if err != nil || len(alive) == 0 {
			a.Result = sqlqueue.Unregistered
			return a, err
		}
	}
	statement := "insert"
	if !t.anchored {
		statement = "insert_first"
	} else if !t.marked {
		_, _, err = t.exec("mark", v)
	}
	var key int64
	if err == nil {
		v.held = grantable
		_, key, err = t.exec(statement, v)
	}
	if a = granted(a, key); !grantable {
		a.Result, a.Due = sqlqueue.Queued, dueIn(q)
	}
	return a, err
}

// own finds a ticket in a queue.
func (t *turn) own(q []row, id string) ([]row, error) {
	if i := slices.IndexFunc(q, func(r row) bool { return r.ID == id }); i >= 0 {
		return q[i : i+1], nil
	}
	return rowsOf(t, "find", valuesOf(t.name, id), scanRow)
}

// renew answers for a ticket that is held already.
func (t *turn) renew(own row, ttl time.Duration, a sqlqueue.Answer) (sqlqueue.Answer, error) {
	v := values{left: ttl, entries: []string{own.entry}, ids: []string{own.ID}, names: []string{t.name}}
	n, _, err := t.exec("renew", v)
	if err == nil && n == 0 {
		var held []string
		if held, err = rowsOf(t, "renewed", v, scanOne[string]); err == nil && len(held) == 0 {
			err = errChanged // the lease has ended just now
		}
	}
	return granted(a, int64(own.Token)), err //nolint:gosec // it came from the table
}

// Remove implements sqlqueue.Store. Nobody may wait for the name, unless this process waits for something.
func (s *store) Remove(ctx context.Context, process int64, h driver.Hold) (r sqlqueue.Removal, err error) {
	v := valuesOf(h.Name, h.ID)
	v.process = process
	if !s.waits() {
		if n, err := s.change(ctx, "release", v); err != nil || n > 0 {
			return sqlqueue.Removal{Found: n > 0}, err
		}
	}
	if d, err := s.call(ctx, "release_call", v); err != nil || d.what != doneNothing {
		return sqlqueue.Removal{Found: err == nil, Grants: d.grants}, err
	}
	if h.Token == 0 { // it may not be there, and then the release does not wait for others who use the queue
		found, err := query(ctx, s, s.w.render("find", valuesOf(h.Name, h.ID)), scanRow)
		if err != nil || len(found) == 0 {
			return sqlqueue.Removal{}, err
		}
	}
	return s.removal(ctx, process, h.Name, func(r row) bool { return r.ID == h.ID }, func(t *turn) ([]row, error) {
		return rowsOf(t, "find", valuesOf(h.Name, h.ID), scanRow)
	})
}

// Break implements sqlqueue.Store.
func (s *store) Break(ctx context.Context, process int64, name string, token uint64) (sqlqueue.Removal, error) {
	if q, err := s.Queue(ctx, name); err != nil || len(q) == 0 { // there may be no tables
		return sqlqueue.Removal{}, err
	}
	return s.removal(ctx, process, name, func(r row) bool { return r.Token == token }, func(t *turn) ([]row, error) {
		return rowsOf(t, "numbered", values{token: token}, scanRow)
	})
}

// removal removes a ticket of a queue, which is found among the first or by a query.
func (s *store) removal(ctx context.Context, process int64, name string, is func(row) bool, find func(*turn) ([]row, error)) (r sqlqueue.Removal, err error) {
	r.Grants, err = s.turn(ctx, process, name, false, func(t *turn) error {
		r.Found = false
		q, err := t.head(is)
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(q, is); i >= 0 {
			r.Found, err = t.drop(q, q[i])
			return err
		}
		found, err := find(t)
		if err == nil && len(found) > 0 {
			r.Found, err = t.drop(q, found[0])
		}
		return err
	})
	return r, err
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
	v := values{left: rs[which[0]].TTL}
	for _, i := range which {
		v.add(rs[i].Hold)
	}
	n, err := s.change(ctx, "renew", v)
	if err != nil || n == int64(len(which)) {
		return which, err
	}
	held, err := query(ctx, s, s.w.render("renewed", v), scanOne[string]) // a row that did not change may have a longer lease
	slices.Sort(held)
	return slices.DeleteFunc(slices.Clone(which), func(i int) bool {
		_, found := slices.BinarySearch(held, rs[i].ID)
		return !found
	}), err
}

// add adds a held ticket to those of a statement. It may be an anchor or, if it is shared, another row.
func (v *values) add(h driver.Hold) {
	v.entries, v.ids, v.names = append(v.entries, h.Name), append(v.ids, h.ID), append(v.names, h.Name)
	if h.Shared {
		v.entries = append(v.entries, entryOf(h.ID))
	}
}

// Shorten implements sqlqueue.Store.
func (s *store) Shorten(ctx context.Context, h driver.Hold, left time.Duration) (bool, error) {
	v := values{left: left, Request: driver.Request{Name: h.Name}}
	v.add(h)
	n, err := s.change(ctx, "shorten", v)
	if err == nil && n == 0 { // a row that did not change may have a shorter lease
		var held []string
		if held, err = query(ctx, s, s.w.render("renewed", v), scanOne[string]); err != nil || len(held) == 0 {
			return false, err
		}
	}
	if err != nil {
		return false, err
	}
	first, err := query(ctx, s, s.w.render("first", v), scanRow)
	if err == nil && len(first) > 0 {
		_ = s.with(ctx, func(ctx context.Context, c *sql.Conn) error { s.wake(ctx, c, first); return nil })
	}
	return true, nil // without a notice the waiter asks soon
}

// Heartbeat implements sqlqueue.Store. A process that is woken reads its grants whenever it begins to sleep.
func (s *store) Heartbeat(ctx context.Context, process int64, life time.Duration, create bool) (h sqlqueue.Heartbeat, err error) {
	l := s.listening.Load()
	v := values{process: process, left: life, start: l.server, connection: l.connection}
	h.Sent = time.Now()
	r, err := s.exec(ctx, "heartbeat", v)
	if err != nil {
		return h, err
	}
	n, err1 := r.RowsAffected()
	h.Number, err = r.LastInsertId()
	if err = cmp.Or(err1, err); n == 0 {
		h.Number = 0
		if err == nil && create { // somebody else may just have done so
			h.Number, err = s.insert(ctx, "register", v)
		}
		return h, err
	}
	if l.connection == 0 && err == nil {
		h.Mine, err = s.Mine(ctx, process, false)
	}
	return h, err
}

// Mine implements sqlqueue.Store.
func (s *store) Mine(ctx context.Context, process int64, all bool) (m sqlqueue.Mine, err error) {
	statement := "mine"
	if all {
		statement = "mine_all"
	}
	m.Sent = time.Now()
	m.Tickets, err = query(ctx, s, s.w.render(statement, values{process: process}), func(rows *sql.Rows) (t sqlqueue.Ticket, err error) {
		var left int64
		err = rows.Scan(&t.Token, &t.ID, &t.Name, &t.Held, &left)
		t.Left = time.Duration(left) * time.Microsecond
		return t, err
	})
	return m, err
}

// Leave implements sqlqueue.Store.
func (s *store) Leave(ctx context.Context, process int64) error {
	_, err := s.exec(ctx, "depart", values{process: process})
	return err
}

const (
	dueLeast = 8   // tickets that Due reads of a queue at first
	dueNames = 100 // queues of one statement
)

// Due implements sqlqueue.Store.
func (s *store) Due(ctx context.Context, process int64, names []string) (due []sqlqueue.Due, err error) {
	for some := range slices.Chunk(names, dueNames) {
		qs, err := s.heads(ctx, some, dueLeast)
		for i, q := range qs {
			if err == nil && readsOn(q, dueLeast, nothing) {
				var all [][]row
				if all, err = s.heads(ctx, some[i:i+1], headAll); err == nil {
					q = all[0]
				}
			}
			w := slices.IndexFunc(q, func(r row) bool { return !r.Held })
			due = append(due, sqlqueue.Due{In: dueIn(q), First: w >= 0 && q[w].process == process})
		}
		if err != nil {
			return nil, err
		}
	}
	return due, nil
}

// heads returns the first tickets of queues.
func (s *store) heads(ctx context.Context, names []string, most int) ([][]row, error) {
	var text strings.Builder
	for i, name := range names {
		if i > 0 {
			text.WriteString(" UNION ALL ")
		}
		text.WriteString(s.w.render("heads", values{Request: driver.Request{Name: name}, key: i, most: most}))
	}
	qs := make([][]row, len(names))
	_, err := query(ctx, s, text.String(), func(rows *sql.Rows) (none struct{}, err error) {
		var r row
		var i int
		var micros int64
		err = rows.Scan(append([]any{&i}, r.columns(&micros)...)...)
		r.left = time.Duration(micros) * time.Microsecond
		if err == nil {
			qs[i] = append(qs[i], r)
		}
		return none, err
	})
	for _, q := range qs {
		slices.SortFunc(q, func(a, b row) int { return cmp.Compare(a.Token, b.Token) })
	}
	return qs, err
}

// dueIn returns when the first of the tickets at the head of a queue expires, up to an exclusive one; less than 0 if one
// has, or could be granted.
func dueIn(q []row) time.Duration {
	in := time.Hour
	granted := driver.Granted(shownAs(q))
	for i, r := range q {
		if granted[i] && !r.Held {
			return -1
		}
		if in = min(in, r.left); !r.Shared {
			break
		}
	}
	if in <= 0 {
		return -1
	}
	return in
}

// Advance implements sqlqueue.Store.
func (s *store) Advance(ctx context.Context, process int64, name string) ([]sqlqueue.Grant, error) {
	return s.turn(ctx, process, name, false, (*turn).advance)
}

func (t *turn) advance() error {
	q, err := t.queue(nothing)
	if err == nil {
		_, err = t.settle(q, nil)
	}
	return err
}

// Queue implements sqlqueue.Store.
func (s *store) Queue(ctx context.Context, name string) ([]driver.Ticket, error) {
	return look(ctx, s, s.w.render("inspect", valuesOf(name, "")), func(rows *sql.Rows) (t driver.Ticket, err error) {
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
	return look(ctx, s, s.w.render("list", values{}), scanOne[string])
}

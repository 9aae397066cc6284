package mysql

import (
	"context"
	"database/sql"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// A row has what a decision needs of a ticket.
type row struct {
	driver.Ticket
	entry      string
	process    int64
	guarded    bool          // perhaps
	left       time.Duration // of its lease or, if it waits, of the life of its process
	heartbeat  int64         // of the process: the last one
	aliveUntil int64         // on the server's clock, in microseconds
	connection int64         // that wakes the process; 0: none
}

func (r *row) isAnchor(name string) bool { return r.entry == name }

// columns are where to scan ticketColumns.
func (r *row) columns(micros *int64) []any {
	return []any{
		&r.entry, &r.Token, &r.ID, &r.process, &r.Shared, &r.Limit, &r.Held, &r.guarded,
		micros, &r.heartbeat, &r.aliveUntil, &r.connection,
	}
}

func scanRow(rows *sql.Rows) (r row, err error) {
	var micros int64
	err = rows.Scan(r.columns(&micros)...)
	r.left = time.Duration(micros) * time.Microsecond
	return r, err
}

// A turn is a transaction on the queue of a name, which it has locked: the slot first, then the anchor. Nobody inserts a
// ticket or grants one meanwhile, and nobody removes the anchor.
type turn struct {
	s       *store
	ctx     context.Context //nolint:containedctx // of the request that it is a part of
	c       *sql.Conn
	name    string
	process int64 // that asks

	now      int64 // the server's clock, in microseconds, when the queue was locked
	here     bool  // the server is the one that the request was meant for
	anchored bool  // there is an anchor
	empty    bool  // and it has no ticket
	marked   bool  // and it stays

	grants []sqlqueue.Grant
	woken  []row // their processes have to be notified
}

// busyError says that somebody else has locked the queue, and the turn does not wait.
type busyError struct{}

func (busyError) Error() string { return "the queue is in use" }

// turn runs f in a transaction on the queue of a name, and wakes those that were granted something after its commit. With
// skip it does not wait for the queue.
func (s *store) turn(ctx context.Context, process int64, name string, skip bool, f func(*turn) error) (grants []sqlqueue.Grant, err error) {
	err = s.transaction(ctx, func(ctx context.Context, c *sql.Conn) (then func(), err error) {
		t := &turn{s: s, ctx: ctx, c: c, name: name, process: process}
		if err := t.lock(skip); err != nil {
			return nil, err
		}
		if err := f(t); err != nil {
			return nil, err
		}
		return func() {
			grants = t.grants
			s.wake(ctx, c, t.woken)
		}, nil
	})
	return grants, err
}

func (t *turn) exec(statement string, v values) (n, key int64, err error) {
	v.Name = t.name
	r, err := t.c.ExecContext(t.ctx, t.s.w.render(statement, v))
	if err != nil {
		return 0, 0, err
	}
	if n, err = r.RowsAffected(); err == nil {
		key, err = r.LastInsertId()
	}
	return n, key, err
}

// rowsOf reads the rows of a query in a turn.
func rowsOf[T any](t *turn, statement string, v values, scan func(*sql.Rows) (T, error)) ([]T, error) {
	v.Name = t.name
	rows, err := t.c.QueryContext(t.ctx, t.s.w.render(statement, v))
	return scanAll(rows, err, scan)
}

func (t *turn) lock(skip bool) error {
	if skip {
		if err := t.try(); err != nil {
			return err
		}
	}
	locked, err := rowsOf(t, "lock", values{start: t.s.start.Load()}, func(rows *sql.Rows) (struct{}, error) {
		return struct{}{}, rows.Scan(&t.now, &t.here, &t.anchored, &t.empty, &t.marked)
	})
	if err == nil && len(locked) == 0 {
		err = errNoSlot
	}
	return err
}

// try locks the queue, unless somebody else has locked a part of it.
func (t *turn) try() error {
	free, err := rowsOf(t, "try", values{}, scanOne[int])
	if err == nil && len(free) > 0 {
		if free, err = rowsOf(t, "try_anchor", values{}, scanOne[int]); err == nil && len(free) == 0 {
			var there []int
			if there, err = rowsOf(t, "anchored", values{}, scanOne[int]); err == nil && len(there) == 0 {
				return nil
			}
		}
	}
	if err == nil && len(free) == 0 {
		err = busyError{}
	}
	return err
}

// Tickets that a decision reads at first. If they are all shared, it reads all.
const (
	headLeast = 4
	headAll   = 1 << 30
)

// readsOn reports whether the first tickets of a queue, without one that is to be removed, may not be enough for a
// decision.
func readsOn(q []row, read int, gone func(row) bool) bool {
	return len(q) == read && !slices.ContainsFunc(q, func(r row) bool { return !r.Shared && !gone(r) })
}

func nothing(row) bool { return false }

// head returns the first tickets of the queue: those that are needed for a decision when one of them is removed.
func (t *turn) head(gone func(row) bool) (q []row, err error) {
	for _, most := range []int{headLeast, headAll} {
		if q, err = rowsOf(t, "head", values{most: most}, scanRow); err != nil || !readsOn(q, most, gone) {
			break
		}
	}
	return q, err
}

// queue removes what has expired at the head of the queue, and returns what it reads of it then. Tickets that have expired
// and cannot be removed now are held.
func (t *turn) queue(gone func(row) bool) (q []row, err error) {
	for {
		if q, err = t.head(gone); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(q, func(r row) bool { return r.left <= 0 }) {
			return q, nil
		}
		n, err := t.reap()
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return q, nil
		}
	}
}

// reap removes tickets of the queue that have expired, but for those that transactions guard.
func (t *turn) reap() (removed int, err error) {
	ended, err := rowsOf(t, "ended", values{}, scanRow)
	if err != nil || len(ended) == 0 {
		return 0, err
	}
	var anchor []row // it is locked already
	var v values
	for _, r := range ended {
		if !r.Held && r.heartbeat > 0 {
			v.numbers = append(v.numbers, r.process)
		}
		if r.isAnchor(t.name) {
			anchor = append(anchor, r)
		} else {
			v.entries = append(v.entries, r.entry)
		}
	}
	if len(v.numbers) > 0 { // no later heartbeat revives a process whose ticket is removed
		slices.Sort(v.numbers)
		v.numbers = slices.Compact(v.numbers)
		if _, _, err := t.exec("reap_processes", v); err != nil {
			return 0, err
		}
	}
	var over []row
	if len(v.entries) > 0 {
		over, err = rowsOf(t, "over", v, func(rows *sql.Rows) (r row, err error) {
			err = rows.Scan(&r.entry, &r.Token, &r.guarded)
			return r, err
		})
	}
	if err != nil {
		return 0, err
	}
	return t.removeUnguarded(append(anchor, over...))
}

// removeUnguarded removes tickets, whose rows are locked, but for those that transactions guard.
func (t *turn) removeUnguarded(over []row) (removed int, err error) {
	var free []string
	for _, r := range over {
		unguarded, err := t.unguarded(r)
		if err == nil && unguarded && r.isAnchor(t.name) {
			removed++
			err = t.vacate()
		} else if unguarded {
			free = append(free, r.entry)
		}
		if err != nil {
			return 0, err
		}
	}
	return removed + len(free), t.remove(free...)
}

// unguarded reports whether no transaction guards a ticket, whose row is locked.
func (t *turn) unguarded(r row) (bool, error) {
	if !r.guarded {
		return true, nil
	}
	locked, err := rowsOf(t, "unguarded", values{token: r.Token}, scanOne[string])
	return len(locked) > 0, err
}

// vacate removes the ticket of the anchor, which stays.
func (t *turn) vacate() error {
	t.empty, t.marked = true, true
	_, _, err := t.exec("vacate", values{})
	return err
}

func (t *turn) remove(entries ...string) error {
	if len(entries) == 0 {
		return nil
	}
	if slices.Contains(entries, t.name) {
		t.anchored, t.empty, t.marked = false, false, false
	}
	_, _, err := t.exec("remove", values{entries: entries})
	return err
}

// settle removes a ticket, if one is given, and grants what is grantable in a queue, which q is the head of. It returns
// the queue after that.
func (t *turn) settle(q []row, gone *row) ([]row, error) {
	if gone != nil {
		q = slices.DeleteFunc(q, func(r row) bool { return r.entry == gone.entry })
	}
	granted := driver.Granted(shownAs(q))
	moves := len(q) > 0 && !q[0].Shared && !q[0].Held && granted[0] && q[0].left > 0 // the first becomes the anchor
	var drop []string
	switch {
	case gone == nil:
	case gone.isAnchor(t.name) && len(q) > 0 && !moves:
		if err := t.vacate(); err != nil {
			return nil, err
		}
	default:
		drop = append(drop, gone.entry)
	}
	if t.empty && (moves || len(q) == 0) && !slices.Contains(drop, t.name) {
		drop = append(drop, t.name)
	}
	if err := t.remove(drop...); err != nil {
		return nil, err
	}
	for i := range q {
		if granted[i] && !q[i].Held && q[i].left > 0 {
			if err := t.grant(&q[i], len(q) > 1); err != nil {
				return nil, err
			}
		}
	}
	return q, nil
}

func shownAs(q []row) []driver.Ticket {
	shown := make([]driver.Ticket, len(q))
	for i, r := range q {
		shown[i] = r.Ticket
	}
	return shown
}

// grant makes a ticket that waits a holder, with a provisional lease.
func (t *turn) grant(r *row, others bool) error {
	v := values{entry: r.entry, heartbeat: r.heartbeat, deadline: r.aliveUntil, mark: others && !r.Shared}
	n, _, err := t.exec("grant", v)
	if err != nil || n == 0 { // its process has expired just now
		return err
	}
	if r.Held = true; !r.Shared {
		r.entry, t.anchored, t.empty, t.marked = t.name, true, false, others
	}
	if r.process == t.process {
		t.grants = append(t.grants, sqlqueue.Grant{ID: r.ID, Token: r.Token, Heartbeat: r.heartbeat})
	} else {
		t.woken = append(t.woken, *r)
	}
	return nil
}

// drop removes a ticket, which was read after the queue was locked, and grants the next. It reports whether the ticket's
// lease went on. Q is the head of the queue.
func (t *turn) drop(q []row, gone row) (live bool, err error) {
	if live = gone.left > 0; gone.process != t.process && !gone.Held { // somebody else has broken it
		t.woken = append(t.woken, gone)
	}
	if gone.Held && !gone.isAnchor(t.name) { // else it is locked
		guarded, err := rowsOf(t, "hold", values{entry: gone.entry}, scanOne[bool])
		if err != nil || len(guarded) == 0 {
			return false, err
		}
		gone.guarded = guarded[0]
	}
	unguarded, err := t.unguarded(gone)
	if err != nil {
		return false, err
	}
	if !unguarded { // to remove it could mean to wait for the end of a transaction
		if _, _, err := t.exec("end_lease", values{entry: gone.entry}); err != nil {
			return false, err
		}
		return live, t.wakeFirst()
	}
	if slices.ContainsFunc(q, func(r row) bool { return r.left <= 0 && r.entry != gone.entry }) {
		if q, err = t.queue(func(r row) bool { return r.entry == gone.entry }); err != nil {
			return false, err
		}
	}
	_, err = t.settle(q, &gone)
	return live, err
}

// wakeFirst notifies the process of the first waiter that the queue is due.
func (t *turn) wakeFirst() error {
	first, err := rowsOf(t, "first", values{}, scanRow)
	t.woken = append(t.woken, first...)
	return err
}

package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A row is a ticket as it was read for a decision.
type row struct {
	token   uint64
	id      string
	shared  bool
	permits int
	expired bool          // and not reaped yet: it still blocks
	left    time.Duration // until it expires
}

// A candidate is a ticket of this process as the grant rule sees it.
type candidate struct {
	token   uint64
	shared  bool
	permits int
}

// Only as many tickets of a queue are read as can affect a decision.
const (
	headLeast    = 3 // to see how far ahead the holder is
	readersFirst = 64
	readersMost  = 1 << 20
)

// enough is how many tickets at the head of the queue decide whether c is granted; for
// readers without a limit it is a first try.
func (c candidate) enough() int {
	switch {
	case !c.shared:
		return 1
	case c.permits > 0 && c.permits < readersMost:
		return c.permits
	}
	return readersFirst
}

// A verdict is what follows from the head of a queue for a ticket.
type verdict uint8

const (
	blocked verdict = iota
	granted
	unsure // more of the queue has to be read
)

// judge applies the rule of driver.Grantable to the head of a queue: rows are its first
// tickets, at most most of them. An expired ticket blocks until it is reaped.
func (c candidate) judge(rows []row, most int) verdict {
	for i, r := range rows {
		switch {
		case r.token == c.token && (!c.shared || c.permits == 0 || i < c.permits):
			return granted
		case r.token >= c.token, !r.shared, !c.shared, c.permits > 0 && i+1 >= c.permits:
			return blocked
		}
	}
	if len(rows) < most {
		return blocked // it is not in the queue any more
	}
	return unsure
}

func anyExpired(rows []row) bool {
	return slices.ContainsFunc(rows, func(r row) bool { return r.expired })
}

// A keyedRow is a row of one of several queues.
type keyedRow struct {
	key int
	row
}

func scanRow(rows *sql.Rows) (r keyedRow, err error) {
	var left int64
	err = rows.Scan(&r.key, &r.token, &r.id, &r.shared, &r.permits, &r.expired, &left)
	r.left = time.Duration(left) * time.Microsecond
	return r, err
}

// A reading is the head of a queue.
type reading struct {
	name string
	most int
	rows []row
}

// heads reads the heads of several queues in one statement.
func (d *Driver) heads(ctx context.Context, queues []*reading) error {
	texts := make([]string, len(queues))
	for i, q := range queues {
		texts[i] = "(" + d.w.render("head", values{key: i, name: q.name, most: q.most}) + ")"
	}
	all, err := query(ctx, d, strings.Join(texts, " UNION ALL "), scanRow)
	for _, r := range all {
		if r.id != "" { // else the ticket was released while it was read
			queues[r.key].rows = append(queues[r.key].rows, r.row)
		}
	}
	return err
}

// head reads the first tickets of a queue.
func (d *Driver) head(ctx context.Context, name string, most int) ([]row, error) {
	q := &reading{name: name, most: most}
	err := d.heads(ctx, []*reading{q})
	return q.rows, err
}

// grantable reports whether a request would be granted if it was queued now, or its ticket is already in
// the queue.
func (d *Driver) grantable(ctx context.Context, r driver.Request) (bool, error) {
	most := candidate{shared: r.Shared, permits: r.Limit}.enough()
	if r.Shared && r.Limit == 0 {
		most = readersMost
	}
	for {
		rows, err := d.head(ctx, r.Name, most)
		if err == nil && anyExpired(rows) {
			var n int
			if n, err = d.reap(ctx, r.Name); err == nil && n > 0 {
				continue
			}
		}
		if err != nil {
			return false, err
		}
		queue := make([]driver.Ticket, 0, len(rows)+1)
		for _, t := range rows {
			if t.id == r.ID {
				return true, nil
			}
			queue = append(queue, driver.Ticket{Shared: t.shared, Limit: t.permits})
		}
		return driver.Grantable(append(queue, r.Ticket(0)), len(queue)), nil
	}
}

// reap deletes the expired tickets of a queue that no transaction guards, and returns their number.
func (d *Driver) reap(ctx context.Context, name string) (n int, err error) {
	expired, err := d.tokens(ctx, "expired", values{name: name})
	if err != nil {
		return 0, err
	}
	if len(expired) > 0 {
		err = d.transaction(ctx, func(c *sql.Conn) (err error) {
			n, err = d.reapThese(ctx, c, name, expired)
			return err
		})
		if err != nil || n == 0 { // what is left keeps the queue open
			return 0, err
		}
	}
	return n, d.closeQueue(ctx, name)
}

// reapThese is called in a transaction.
func (d *Driver) reapThese(ctx context.Context, c *sql.Conn, name string, tokens []uint64) (int, error) {
	rows, err := c.QueryContext(ctx, d.w.render("reap_lock", values{name: name, tokens: tokens}))
	locked, err := scanAll(rows, err, scanOne[uint64])
	if err != nil || len(locked) == 0 {
		return 0, err
	}
	slices.Sort(locked)
	v := values{tokens: locked, inTx: true}
	r, err := c.ExecContext(ctx, d.w.render("reap", v))
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	if err == nil && n < int64(len(locked)) {
		_, err = c.ExecContext(ctx, d.w.render("reap_anchors", v))
	}
	return len(locked), err
}

// closeQueue deletes the anchor of a queue that is empty.
func (d *Driver) closeQueue(ctx context.Context, name string) error {
	_, err := d.exec(ctx, "close", values{name: name})
	return err
}

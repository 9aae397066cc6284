package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"
)

// A row is a ticket as a decision sees it.
type row struct {
	token   uint64
	id      string
	shared  bool
	permits int
	held    bool
	dead    bool          // its time is over, and nobody has buried it yet
	left    time.Duration // until then
}

// A seat is the place of a ticket of ours, and what it asks for.
type seat struct {
	token   uint64
	shared  bool
	permits int
}

// Of a line only so many tickets are read as can bear on a decision.
const (
	readersFirst = 64
	readersMost  = 1 << 20
)

// enough is how many tickets at the head of the line tell whether s is granted;
// for readers without a limit it is a first try.
func (s seat) enough() int {
	switch {
	case !s.shared:
		return 1
	case s.permits > 0 && s.permits < readersMost:
		return s.permits
	}
	return readersFirst
}

// verdict is what the head of a line says of a ticket.
type verdict uint8

const (
	blocked verdict = iota
	granted
	unsure // more of the line has to be read
)

// judge applies the rule of driver.Grantable to the head of a line: rows are its
// first tickets, at most most of them. Whoever is dead blocks until buried.
func (s seat) judge(rows []row, most int) verdict {
	for i, r := range rows {
		switch {
		case r.token == s.token && (!s.shared || s.permits == 0 || i < s.permits):
			return granted
		case r.token >= s.token, !r.shared, !s.shared, s.permits > 0 && i+1 >= s.permits:
			return blocked
		}
	}
	if len(rows) < most {
		return blocked // s is not in line any more
	}
	return unsure
}

func anyDead(rows []row) bool {
	for _, r := range rows {
		if r.dead {
			return true
		}
	}
	return false
}

func scanRow(rows *sql.Rows) (key int, r row, err error) {
	var left int64
	err = rows.Scan(&key, &r.token, &r.id, &r.shared, &r.permits, &r.held, &r.dead, &left)
	r.left = time.Duration(left) * time.Microsecond
	return key, r, err
}

// head reads the first tickets of a line.
func (d *Driver) head(ctx context.Context, name string, most int) ([]row, error) {
	var line []row
	err := d.query(ctx, d.w.render("head", values{name: name, most: most}), func(rows *sql.Rows) error {
		_, r, err := scanRow(rows)
		if r.id != "" { // its ticket was not released meanwhile
			line = append(line, r)
		}
		return err
	})
	return line, err
}

// heads reads the first tickets of several lines in one statement.
func (d *Driver) heads(ctx context.Context, lines []reading) error {
	var all strings.Builder
	for i := range lines {
		if i > 0 {
			all.WriteString(" UNION ALL ")
		}
		all.WriteByte('(')
		all.WriteString(d.w.render("head", values{key: i, name: lines[i].name, most: lines[i].most}))
		all.WriteByte(')')
	}
	return d.query(ctx, all.String(), func(rows *sql.Rows) error {
		i, r, err := scanRow(rows)
		if err == nil && r.id != "" {
			lines[i].rows = append(lines[i].rows, r)
		}
		return err
	})
}

// crowded tells whether others stand behind an exclusive ticket at the head of a line.
func crowded(s seat, rows []row) bool {
	return !s.shared && len(rows) > 1
}

// look judges a ticket, after burying those ahead of it that are dead, and returns
// the head of the line.
func (d *Driver) look(ctx context.Context, name string, s seat) (verdict, []row, error) {
	for most, buried := max(s.enough(), ranks), false; ; {
		rows, err := d.head(ctx, name, most)
		if err != nil {
			return blocked, nil, err
		}
		if anyDead(rows) && !buried {
			n, err := d.bury(ctx, name)
			if err != nil {
				return blocked, nil, err
			}
			buried = n == 0 // they are guarded: no need to try again
			continue
		}
		v := s.judge(rows, most)
		if v != unsure || most >= readersMost {
			return v, rows, nil
		}
		most = min(8*most, readersMost)
	}
}

// bury removes from a line the tickets whose time is over, but for those that a
// transaction guards, and returns how many these were.
func (d *Driver) bury(ctx context.Context, name string) (n int, err error) {
	dead, err := d.tokens(ctx, "dead", values{name: name})
	if err != nil {
		return 0, err
	}
	if len(dead) > 0 {
		err = d.transaction(ctx, func(c *sql.Conn) (err error) {
			n, err = d.buryThese(ctx, c, name, sorted(dead))
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return n, d.closeGate(ctx, name)
}

// buryThese is done in a transaction.
func (d *Driver) buryThese(ctx context.Context, c *sql.Conn, name string, tokens []uint64) (int, error) {
	rows, err := c.QueryContext(ctx, d.w.render("bury", values{name: name, tokens: tokens}))
	if err != nil {
		return 0, err
	}
	ours, err := scanTokens(rows)
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	v := values{tokens: sorted(ours), inTx: true}
	r, err := c.ExecContext(ctx, d.w.render("buried", v))
	if err != nil {
		return 0, err
	}
	n, err := r.RowsAffected()
	if err == nil && n < int64(len(ours)) {
		_, err = c.ExecContext(ctx, d.w.render("vacated", v))
	}
	return len(ours), err
}

// closeGate takes away the gate of a line that is empty.
func (d *Driver) closeGate(ctx context.Context, name string) error {
	_, err := d.exec(ctx, "close", values{name: name})
	return err
}

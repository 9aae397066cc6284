package mysql

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

//go:embed procedures.sql
var proceduresText string

var procedures = []string{"call_clock", "call_mine", "call_show", "call_wake", "call_walk", "call_take", "call_remove", "call_advance"}

// What a procedure has done.
const (
	doneNothing  = iota // there was nothing to do it to, or it was in use
	doneIt              // granted, removed, moved on
	doneQueued          // and the number is microseconds
	doneRefused         // since the ticket does not wait
	doneUnknown         // the process has no row
	doneLate            // the request arrived too late, or at another server
	doneNoSlot          // the row of the slot is missing
	doneOutlived        // the lease of the ticket has ended
)

// done is the answer of a procedure.
type done struct {
	what   int
	number int64
	grants []sqlqueue.Grant
}

// call calls a procedure.
func (s *store) call(ctx context.Context, statement string, v values) (d done, err error) {
	err = s.send(ctx, func(ctx context.Context, c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, s.w.render(statement, v))
		all, err := scanAll(rows, err, scanDone)
		switch {
		case isOneOf(err, errInterrupted, errTimeout): // before the commit or after it
			discard(c)
			return fmt.Errorf("%w: %w", mysql.ErrInvalidConn, errors.New(err.Error()))
		case code(err) != 0 && !rolledBack(err):
			discard(c) // where memory was short, say, no handler has seen it, and the transaction would go on
		case err == nil && len(all) == 1:
			d = all[0]
		}
		return err
	})
	return d, err
}

func scanDone(rows *sql.Rows) (d done, err error) {
	var mine string
	err = rows.Scan(&d.what, &d.number, &mine)
	for line := range strings.Lines(mine) {
		if g, ok := sqlqueue.ParseGrant(line); ok {
			d.grants = append(d.grants, g)
		}
	}
	return d, err
}

// procedureStatements are the statements that create the procedures.
func (w *wire) procedureStatements() (all []string) {
	for _, name := range procedures {
		all = append(all, w.render(name, nil))
	}
	return all
}

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

var procedures = []string{"call_take", "call_remove"}

// What a procedure has done.
const (
	doneNothing = iota // it left the queue as it is
	doneGranted        // or removed
	doneQueued
	doneRefused
	doneUnregistered
	doneLate
)

// done is the answer of a procedure.
type done struct {
	what   int
	number int64 // a token, or microseconds
	grants []sqlqueue.Grant
}

// call calls a procedure. Where it is missing and cannot be created, or may not be executed, nothing is done, and it is not called again.
func (s *store) call(ctx context.Context, statement string, v values) (d done, err error) {
	if s.plain.Load() {
		return done{}, nil
	}
	if d, err = s.callOnce(ctx, statement, v); code(err) == errNoProcedure && s.opts.create {
		if created := s.with(ctx, s.createProcedures); created == nil {
			d, err = s.callOnce(ctx, statement, v)
		}
	}
	if isOneOf(err, errNoProcedure, errDeniedRoutine) {
		s.plain.Store(true)
		return done{}, nil
	}
	return d, err
}

func (s *store) callOnce(ctx context.Context, statement string, v values) (d done, err error) {
	text := s.w.render(statement, v)
	err = s.retry(ctx, func() error {
		return s.with(ctx, func(ctx context.Context, c *sql.Conn) error {
			rows, err := c.QueryContext(ctx, text)
			all, err := scanAll(rows, err, scanDone)
			switch {
			case code(err) == errInterrupted: // somebody has, before the commit or after it
				discard(c)
				return fmt.Errorf("%w: %w", mysql.ErrInvalidConn, errors.New(err.Error()))
			case err == nil && len(all) == 1:
				d = all[0]
			}
			return err
		})
	})
	return d, err
}

func scanDone(rows *sql.Rows) (d done, err error) {
	var mine string
	err = rows.Scan(&d.what, &d.number, &mine)
	if g, ok := sqlqueue.ParseGrant(mine); ok {
		d.grants = []sqlqueue.Grant{g}
	}
	return d, err
}

// createProcedures creates the procedures. Others may do so at the same time.
func (s *store) createProcedures(ctx context.Context, c *sql.Conn) error {
	for _, name := range procedures {
		_, err := c.ExecContext(ctx, s.w.render(name, values{}))
		if err != nil && code(err) != errProcedureExists {
			return err
		}
	}
	return nil
}

// Procedures returns the SQL that creates the procedures, for the client mysql (it contains its command DELIMITER): for
// programs that do not let the driver create them. Without them the driver needs more requests; see the package comment.
func Procedures(opts ...Option) (string, error) {
	o, err := newOptions(opts)
	if err != nil {
		return "", fmt.Errorf("mysql: Procedures: %w", err)
	}
	w, err := newWire(current, o.prefix)
	if err != nil {
		return "", fmt.Errorf("mysql: Procedures: %w", err)
	}
	var text strings.Builder
	text.WriteString("DELIMITER //\n")
	for _, name := range procedures {
		text.WriteString(w.render(name, values{}) + " //\n")
	}
	text.WriteString("DELIMITER ;\n")
	return text.String(), nil
}

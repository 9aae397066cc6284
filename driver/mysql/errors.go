package mysql

import (
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Codes of errors, of MySQL and MariaDB alike where not said otherwise.
const (
	errDuplicate       = 1062
	errNull            = 1048
	errNoTable         = 1146
	errNoColumn        = 1054
	errTableExists     = 1050
	errRange           = 1690 // see autocommitOn
	errTwoRows         = 1242 // see onPrimary
	errLockTimeout     = 1205
	errNowait          = 3572 // MySQL: on MariaDB it is 1205
	errInterrupted     = 1317
	errTimeout         = 1969 // max_statement_time of MariaDB
	errTimeoutMySQL    = 3024 // max_execution_time
	errProcedureExists = 1304
	errNoProcedure     = 1305
	errDeniedRoutine   = 1370
)

// classes says what errors of a server mean, beside that the request had no effect.
var classes = map[uint16]sqlqueue.Class{
	errNoTable: sqlqueue.Missing, errNoProcedure: sqlqueue.Missing, errNoColumn: sqlqueue.Missing,

	1213:           sqlqueue.Passing, // a deadlock
	errLockTimeout: sqlqueue.Passing, errTimeout: sqlqueue.Passing, errTimeoutMySQL: sqlqueue.Passing, errInterrupted: sqlqueue.Passing,
	1467: sqlqueue.Passing, // MariaDB: a deadlock over the lock on AUTO_INCREMENT, among other things
	1020: sqlqueue.Passing, // MariaDB 11.6 and later: the record has changed
	3101: sqlqueue.Passing, // MySQL: Group Replication rolled back in favour of a concurrent transaction

	1290: sqlqueue.Down, 1792: sqlqueue.Down, 1836: sqlqueue.Down, // the server is read only
	1036: sqlqueue.Down, errTwoRows: sqlqueue.Down, // its tables are, by innodb_read_only
	1040: sqlqueue.Down, 1203: sqlqueue.Down, 1226: sqlqueue.Down, // too many connections
	2002: sqlqueue.Down, 2003: sqlqueue.Down, // a proxy cannot connect to the server
	9001: sqlqueue.Down, 9002: sqlqueue.Down, // the same of ProxySQL
	3032: sqlqueue.Down,                      // MySQL: the server is in offline mode
	1047: sqlqueue.Down,                      // Galera: not yet prepared for use
	1021: sqlqueue.Down, 1114: sqlqueue.Down, // a disk, or a table, is full
}

// code is the number of a server's error; 0: err is none.
func code(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

func isOneOf(err error, codes ...uint16) bool { return slices.Contains(codes, code(err)) }

// rolledBack reports whether the server has rolled back a statement that may succeed when it is sent again.
func rolledBack(err error) bool { return classes[code(err)]&sqlqueue.Passing != 0 }

// readOnly reports whether the server has refused a statement because it is read only.
func readOnly(err error) bool { return isOneOf(err, 1036, 1290, 1792, 1836, errTwoRows) }

// denied reports whether the user lacks a right.
func denied(err error) bool { return isOneOf(err, 1142, 1044, 1227, errDeniedRoutine) }

// broken reports whether a connection ended before its statement was answered: the server ends it before or after that was
// executed, when it shuts down, has been told to, or after a while without a statement. A proxy whose connection to the server
// ended answers with the error of its own client (2006, 2013).
func broken(err error) bool {
	return isOneOf(err, 1053, 1927, 4031, 2006, 2013) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn)
}

var errChanged = errors.New("the queue changed, or a lease ended, meanwhile")

// notDone is the error of a request that certainly had no effect: it was not sent, or its transaction was not committed.
type notDone struct{ error }

func (e *notDone) Unwrap() error { return e.error }

// Class implements sqlqueue.Store.
func (*store) Class(err error) sqlqueue.Class {
	var undone *notDone
	var network *net.OpError
	c, ends, isNetwork := classes[code(err)], broken(err), errors.As(err, &network)
	if errors.As(err, &undone) || code(err) != 0 && !ends || errors.Is(err, sqldriver.ErrBadConn) {
		c |= sqlqueue.Undone
	}
	if ends && !(isNetwork && network.Op == "dial") || errors.Is(err, errChanged) {
		c |= sqlqueue.Passing
	}
	if ends || isNetwork {
		c |= sqlqueue.Down
	}
	return c
}

// explain says what to do about some errors.
func explain(err error) error {
	switch code(err) {
	case errRange:
		return fmt.Errorf("autocommit is off in a session of the database, or a transaction was left open there, so that no lock would be "+
			"committed: put autocommit=1 into the DSN, and begin transactions by BeginTx (%w)", err)
	case errTwoRows:
		return fmt.Errorf("the server is read-only, as one that was demoted is (%w)", err)
	case errDeniedRoutine:
		return fmt.Errorf("%w: the driver calls procedures, for which the user needs a right: GRANT EXECUTE ON the database", err)
	}
	return err
}

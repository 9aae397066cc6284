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

// Error codes, of MySQL and MariaDB alike where not said otherwise.
const (
	errDuplicate    = 1062
	errNull         = 1048
	errNoTable      = 1146
	errNoColumn     = 1054
	errTableExists  = 1050
	errRange        = 1690 // see autocommitOn
	errLockTimeout  = 1205 // on MariaDB also NOWAIT
	errDeadlock     = 1213
	errCommitUndone = 3101 // MySQL: Group Replication rolled back in favour of a concurrent transaction
	errNowait       = 3572 // MySQL
	errNumbering    = 1467 // MariaDB: a deadlock over the lock on AUTO_INCREMENT, among other things
	errStaleRead    = 1020 // MariaDB 11.6 and later: the record has changed
	errDenied       = 1142
	errDeniedSchema = 1044
	errDeniedFor    = 1227
	errInterrupted  = 1317
	errTimeout      = 1969 // max_statement_time of MariaDB

	errProcedureExists = 1304
	errNoProcedure     = 1305
	errDeniedRoutine   = 1370

	// The server is read only.
	errReadOnlyOption = 1290
	errReadOnlyTx     = 1792
	errReadOnlyMode   = 1836

	// The server ends the connection, before or after it has executed the statement.
	errShutdown = 1053
	errKilled   = 1927 // MariaDB: connection was killed
	errInactive = 4031 // MySQL: the client was disconnected because of inactivity

	// The server can do nothing for anybody at present.
	errManyConnections     = 1040
	errManyUserConnections = 1203
	errUserResource        = 1226
	errNotReady            = 1047 // Galera: not yet prepared for use
	errDiskFull            = 1021
	errTableFull           = 1114
)

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
func rolledBack(err error) bool {
	return isOneOf(err, errDeadlock, errLockTimeout, errStaleRead, errNumbering, errCommitUndone)
}

// readOnly reports whether the server has refused a statement because it is read only.
func readOnly(err error) bool { return isOneOf(err, errReadOnlyOption, errReadOnlyTx, errReadOnlyMode) }

// denied reports whether the user lacks a right.
func denied(err error) bool {
	return isOneOf(err, errDenied, errDeniedSchema, errDeniedFor, errDeniedRoutine)
}

// broken reports whether a connection ended before its statement was answered.
func broken(err error) bool {
	return isOneOf(err, errKilled, errShutdown, errInactive) ||
		errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sqldriver.ErrBadConn)
}

// unavailable reports whether the server did not answer, or refuses everybody.
func unavailable(err error) bool {
	var network *net.OpError
	return isOneOf(err, errManyConnections, errManyUserConnections, errUserResource, errNotReady, errDiskFull, errTableFull) ||
		readOnly(err) || broken(err) || errors.As(err, &network)
}

var errChanged = errors.New("the queue changed, or a lease ended, meanwhile")

// notDone is the error of a request that certainly had no effect: it was not sent, or its transaction was not committed.
type notDone struct{ error }

func (e *notDone) Unwrap() error { return e.error }

// Class implements sqlqueue.Store.
func (*store) Class(err error) (c sqlqueue.Class) {
	var undone *notDone
	var dial *net.OpError
	connects := errors.As(err, &dial) && dial.Op == "dial"
	if errors.As(err, &undone) || code(err) != 0 && !broken(err) || errors.Is(err, sqldriver.ErrBadConn) {
		c |= sqlqueue.Undone
	}
	if rolledBack(err) || !connects && broken(err) || errors.Is(err, errChanged) {
		c |= sqlqueue.Passing
	}
	if unavailable(err) {
		c |= sqlqueue.Down
	}
	if isOneOf(err, errNoTable, errNoProcedure, errNoColumn) {
		c |= sqlqueue.Missing
	}
	return c
}

// explain says what to do about some errors.
func explain(err error) error {
	switch code(err) {
	case errRange:
		return fmt.Errorf("autocommit is off in a session of the database, where no lock would be committed: "+
			"put autocommit=1 into the DSN (%w)", err)
	case errDeniedRoutine:
		return fmt.Errorf("%w: the driver calls procedures, for which the user needs a right: GRANT EXECUTE ON the database", err)
	}
	return err
}

func droppedError(err error) error {
	return fmt.Errorf("%w: the table was there before: somebody has dropped it, with all tickets, "+
		"or the session is in another database; a new driver creates it again", err)
}

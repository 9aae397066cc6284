package postgres

import (
	"errors"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Codes of errors. The functions of the schema raise the first two.
const (
	codeIsolation       = "LK001" // the transaction is not READ COMMITTED
	codeChanged         = "LK002" // the queue changed, or a lease ended, meanwhile
	codeReadOnly        = "25006" // of a statement that writes, on a replica or in a read-only transaction
	codeStaysReadOnly   = "25001" // of one that would make such a transaction write
	codeDenied          = "42501"
	codeLockTimeout     = "55P03"
	codeNoStatement     = "26000" // a pooler, behind which prepared statements do not outlive a transaction
	codeStatementExists = "42P05" // the same
	codeProgramLimit    = "54000" // of a transaction that notifies, if the queue of notifications is full
)

// errReplica says that a replica has refused BEGIN READ WRITE. Its code alone, "feature not supported", says nothing.
var errReplica = errors.New("the server is a replica")

// noWrites reports whether the server, or the transaction, does not take writes.
func noWrites(err error) bool {
	return code(err) == codeReadOnly || code(err) == codeStaysReadOnly || errors.Is(err, errReplica)
}

// code is the SQLSTATE of an error; "" if the error is not the database's.
func code(err error) string {
	var pg *pgconn.PgError
	if err != nil && errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// Class implements sqlqueue.Store.
func (*store) Class(err error) (c sqlqueue.Class) {
	if errors.Is(err, errBusy) { // the core asks again later
		return sqlqueue.Undone | sqlqueue.Down
	}
	if refused(err) {
		c |= sqlqueue.Undone
	}
	if noWrites(err) {
		return c | sqlqueue.Passing | sqlqueue.Down
	}
	switch n := code(err); n {
	case "":
		return c | classOfClient(err)
	case "42883", "42P01", "3F000": // no such function, table, schema
		return c | sqlqueue.Missing
	case codeIsolation, codeNoStatement, codeStatementExists, // it is sent in another way then
		codeChanged, "40001", "40P01", codeLockTimeout, "57014": // a serialization failure, a deadlock, timeouts
		return c | sqlqueue.Passing
	case "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53300": // a server that starts, stops, crashes or ends what took too long; too many connections
		return c | sqlqueue.Passing | sqlqueue.Down
	default:
		if lostServer(n) && c&sqlqueue.Undone == 0 {
			c |= sqlqueue.Passing
		}
		if lostServer(n) || strings.HasPrefix(n, "53") { // or resources such as the disk
			c |= sqlqueue.Down
		}
		return c
	}
}

// classOfClient is the class of an error that is not the database's, beside whether the statement was sent. The core
// recognizes network errors itself.
func classOfClient(err error) (c sqlqueue.Class) {
	var connect *pgconn.ConnectError
	switch {
	case errors.As(err, &connect): // no connection could be opened
		if strings.Contains(err.Error(), "ValidateConnect failed") { // no server is what target_session_attrs asks for
			c |= sqlqueue.Down
		}
	case !errors.Is(err, errReply) && !errors.Is(err, driver.ErrClosed):
		c |= sqlqueue.Passing // the connection broke
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		c |= sqlqueue.Down
	}
	return c
}

// lostServer reports whether a code is of the class of errors of connections: a pooler's that has lost the server.
func lostServer(code string) bool { return strings.HasPrefix(code, "08") }

// refused reports whether a statement certainly had no effect: the database said so, or it was not sent.
func refused(err error) bool {
	var pg *pgconn.PgError
	var connect *pgconn.ConnectError
	isConnect := errors.As(err, &connect)
	if errors.As(err, &pg) {
		return (pg.SeverityUnlocalized == "ERROR" || pg.Severity == "ERROR") && !lostServer(pg.Code) || isConnect
	}
	return pgconn.SafeToRetry(err) || isConnect
}

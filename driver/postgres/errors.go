package postgres

import (
	"errors"
	"io"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// These are raised by the functions of the schema.
const (
	codeIsolation = "LK001" // the transaction is not READ COMMITTED
	codeChanged   = "LK002" // the queue changed, or a lease ended, meanwhile: try again
)

// codeReadOnly is of a statement that writes, on a replica or in a read-only transaction.
const codeReadOnly = "25006"

// errReplica says that a replica has refused BEGIN READ WRITE. Its code alone, "feature not supported", says nothing.
var errReplica = errors.New("the server is a replica")

// noWrites reports whether the server, or the transaction, does not take writes.
func noWrites(err error) bool { return code(err) == codeReadOnly || errors.Is(err, errReplica) }

const (
	codeDenied      = "42501"
	codeLockTimeout = "55P03"
)

// code is the SQLSTATE of an error; "" if the error is not the database's.
func code(err error) string {
	var pg *pgconn.PgError
	if err != nil && errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// isConnect reports whether no connection could be opened.
func isConnect(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect)
}

// undone reports whether a statement certainly had no effect, and may succeed if it is sent again: after a deadlock, a
// serialization failure, a lock or statement timeout, too many connections, or if the server is starting,
// stopping or a replica for the moment.
func undone(err error) bool {
	if noWrites(err) {
		return true
	}
	switch code(err) {
	case codeChanged, "40001", "40P01", codeLockTimeout, "57014", "57P03", "53300":
		return true
	case "":
		return pgconn.SafeToRetry(err) && !isConnect(err)
	}
	return false
}

// interrupted reports whether the connection broke: the statement may have been executed or not.
func interrupted(err error) bool {
	switch code(err) {
	case "57P01", "57P02", "57P05":
		return true
	case "":
		return err != nil && !isConnect(err) && !errors.Is(err, errReply) && !errors.Is(err, driver.ErrClosed)
	}
	return false
}

// refused reports whether a statement certainly had no effect: the database said so, or it was not sent.
func refused(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.SeverityUnlocalized == "ERROR" || pg.Severity == "ERROR" || isConnect(err)
	}
	return pgconn.SafeToRetry(err) || isConnect(err)
}

// unavailable reports whether the database does not answer, or refuses everybody: connections (08), resources such
// as connections and disk (53), a server that starts, stops or crashes, or that does not take writes. The core
// recognizes network errors itself.
func unavailable(err error) bool {
	if noWrites(err) {
		return true
	}
	switch c := code(err); c {
	case "57P01", "57P02", "57P03", "57P05":
		return true
	case "":
		return isConnect(err) && strings.Contains(err.Error(), "ValidateConnect failed") || // no server is what target_session_attrs asks for
			errors.Is(err, io.ErrUnexpectedEOF)
	default:
		return strings.HasPrefix(c, "08") || strings.HasPrefix(c, "53")
	}
}

// Class implements sqlqueue.Store.
func (*store) Class(err error) (c sqlqueue.Class) {
	if errors.Is(err, errBusy) { // the core asks again later
		return sqlqueue.Undone | sqlqueue.Down
	}
	if refused(err) {
		c |= sqlqueue.Undone
	}
	if undone(err) || interrupted(err) {
		c |= sqlqueue.Passing
	}
	if unavailable(err) {
		c |= sqlqueue.Down
	}
	return c
}

package postgres

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// These are raised by the functions of the schema.
const (
	codeIsolation = "LK001" // the transaction is not READ COMMITTED
	codeChanged   = "LK002" // the queue changed, or a lease ended, meanwhile: try again
)

// A replica raises these: the first for a statement that writes, the second for BEGIN READ WRITE. A read-only
// transaction raises the first, too.
const (
	codeReadOnly = "25006"
	codeReplica  = "0A000"
)

const codeDenied = "42501"

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
	switch code(err) {
	case codeChanged, "40001", "40P01", "55P03", "57014", codeReadOnly, codeReplica, "57P03", "53300":
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
	switch c := code(err); c {
	case "57P01", "57P02", "57P03", "57P05", codeReadOnly, codeReplica:
		return true
	case "":
		return isConnect(err) && strings.Contains(err.Error(), "ValidateConnect failed") || // no server is what target_session_attrs asks for
			errors.Is(err, io.ErrUnexpectedEOF)
	default:
		return strings.HasPrefix(c, "08") || strings.HasPrefix(c, "53")
	}
}

// explain marks the error of a request for the core. It returns ErrClosed if Close ended the request.
func (d *Driver) explain(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case d.ctx.Err() != nil && ctx.Err() == nil:
		return driver.ErrClosed
	case unavailable(err):
		return driver.Unavailable(err)
	}
	return err
}

// interruptions is how many broken connections are tolerated before the caller gets the error.
const interruptions = 3

// repeat calls f until it succeeds or fails for good, and explains its error. A request that may be sent twice
// is sent again after its connection broke. When ctx ends, the error also contains that of the call before the last.
func repeat[T any](ctx context.Context, d *Driver, twice bool, f func() (T, error)) (answer T, err error) {
	backoff, broken := retry.Backoff{First: 5 * time.Millisecond, Most: 250 * time.Millisecond}, 0
	for {
		before := err
		if answer, err = f(); err == nil {
			return answer, nil
		}
		if end := ended(ctx); end != nil {
			return answer, d.explain(ctx, errors.Join(end, err, before))
		}
		again := undone(err)
		if !again && twice && interrupted(err) {
			broken++
			again = broken <= interruptions
		}
		if !again {
			return answer, d.explain(ctx, err)
		}
		if !retry.Sleep(ctx, backoff.Next(), d.ctx.Done()) {
			return answer, d.explain(ctx, errors.Join(context.Cause(ctx), err))
		}
	}
}

// ended returns why ctx is over; nil while it lasts. A connection that is being opened has the deadline of ctx, and
// may time out a moment before ctx does.
func ended(ctx context.Context) error {
	if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond): // its timer is late
			return context.DeadlineExceeded
		}
	}
	return context.Cause(ctx)
}

// lock locks c for one goroutine at a time, which unlocks it by receiving from c.
func (d *Driver) lock(ctx context.Context, c chan struct{}) error {
	select {
	case c <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.ctx.Done():
		return driver.ErrClosed
	}
}

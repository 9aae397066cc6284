package postgres

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver"
)

// These are raised by the schema's functions.
const (
	codeIsolation = "LK001" // the transaction is not READ COMMITTED
	codeAgain     = "LK002" // the queue changed, or a lease ended, meanwhile: try again
)

// These are raised by a replica, the first also by a transaction that may not write, the
// second when a transaction is begun that is to write.
const (
	codeReadOnly = "25006"
	codeReplica  = "0A000"
)

// code is the SQLSTATE of an error; "" if it is not the database's.
func code(err error) string {
	if err == nil {
		return ""
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// undone reports whether the database says, or it is plain, that a statement
// had no effect and may succeed if it is run again: a deadlock, a
// serialization failure, a lock or statement timeout, a server that starts,
// stops or is a replica for the moment, too many connections.
func undone(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		var connect *pgconn.ConnectError
		return pgconn.SafeToRetry(err) && !errors.As(err, &connect)
	}
	switch pg.Code {
	case codeAgain, "40001", "40P01", "55P03", "57014", codeReadOnly, codeReplica, "57P03", "53300":
		return true
	}
	return false
}

// interrupted reports whether the way to the database broke: what was asked
// may or may not have been done.
func interrupted(err error) bool {
	switch code(err) {
	case "57P01", "57P02", "57P05":
		return true
	case "":
		var connect *pgconn.ConnectError
		return err != nil && !errors.As(err, &connect) && !errors.Is(err, errReply) && !errors.Is(err, driver.ErrClosed)
	}
	return false
}

// refused reports whether a statement that was sent, or was about to be, certainly had
// no effect: the database said so, or nothing was sent.
func refused(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.SeverityUnlocalized == "ERROR" || pg.Severity == "ERROR" || isConnect(err)
	}
	return pgconn.SafeToRetry(err) || isConnect(err)
}

func isConnect(err error) bool {
	var connect *pgconn.ConnectError
	return errors.As(err, &connect)
}

// unavailable reports whether an error means that the database does not answer, or
// refuses everybody: connections (08), resources such as connections and disk (53), a
// server that starts, stops or crashes, or that does not take writes. Network errors
// the core knows itself.
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

// failed is the error of a request; of one that was ended by Close it is
// ErrClosed.
func (d *Driver) failed(ctx context.Context, err error) error {
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

const (
	retryFirst = 5 * time.Millisecond
	retryMost  = 250 * time.Millisecond
	interrupts = 3 // tries after a broken connection, before the error is the caller's
)

// retry runs f until it succeeds or fails for good. A request that may safely
// be asked twice is asked again after its connection broke.
func (d *Driver) retry(ctx context.Context, twice bool, f func() error) error {
	broken := 0
	for delay := retryFirst; ; delay = min(2*delay, retryMost) {
		err := f()
		if err == nil {
			return nil
		}
		if end := ended(ctx); end != nil {
			return errors.Join(end, err)
		}
		again := undone(err)
		if !again && twice && interrupted(err) {
			broken++
			again = broken <= interrupts
		}
		if !again {
			return err
		}
		if !d.pause(ctx, delay) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// ended is why ctx is over; nil while it lasts. A connection has the deadline of ctx as its
// own, and may notice it a moment sooner.
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

// pause waits; false when ctx or the driver ended first.
func (d *Driver) pause(ctx context.Context, delay time.Duration) bool {
	t := time.NewTimer(delay)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-d.ctx.Done():
	}
	return false
}

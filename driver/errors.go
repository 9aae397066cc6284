package driver

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/lockerproject/locker/internal/marked"
)

var (
	// ErrNotAcquired says that a request which does not wait cannot be
	// granted now, and has left no ticket.
	ErrNotAcquired = errors.New("lock not acquired")
	// ErrLost says that the ticket is not, or no longer, in the queue.
	ErrLost = errors.New("lock lost")
	// ErrClosed says that the driver has been closed.
	ErrClosed = errors.New("locker closed")
	// ErrUnsupported says that the store cannot do what was requested.
	ErrUnsupported = errors.New("not supported by this store")
	// ErrInvalidOption says that a setting, such as a parameter of a URL, is
	// invalid; the text says which.
	ErrInvalidOption = errors.New("invalid option")
	// ErrUnavailable says that the store did not answer, or refuses everybody:
	// it is down, has no leader, or takes no connection (D14).
	ErrUnavailable = errors.New("store unavailable")
	// ErrNoTicket says that a failed Acquire has left no ticket, and that no
	// ticket will appear later (D9).
	ErrNoTicket = errors.New("no ticket was left")
)

// Unavailable marks err as one that means that the store did not answer or
// refuses everybody: the result wraps err and [ErrUnavailable], and has err's
// text. Nil stays nil.
func Unavailable(err error) error { return mark(err, ErrUnavailable) }

// NoTicket marks an error of Acquire that has certainly left no ticket and after
// which none will appear: no request was sent, or the store has refused it and
// no earlier request for the ticket is unanswered. The core then has nothing to
// remove (D9). The result wraps err and [ErrNoTicket], and has err's text. Nil
// stays nil.
func NoTicket(err error) error { return mark(err, ErrNoTicket) }

func mark(err, sentinel error) error {
	if err == nil || errors.Is(err, sentinel) {
		return err
	}
	return &marked.Error{Err: err, Sentinel: sentinel}
}

// IsUnavailable reports whether err means that the store did not answer or refuses
// everybody: err is marked as [ErrUnavailable], is a network error, which drivers
// need not mark, or is the end of a time limit. The end of the caller's own context
// looks the same, so check that first.
func IsUnavailable(err error) bool {
	switch {
	case err == nil, errors.Is(err, ErrLost), errors.Is(err, ErrNotAcquired), errors.Is(err, ErrClosed):
		return false
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return true
	}
	var (
		op      *net.OpError
		name    *net.DNSError
		timeout net.Error
	)
	if errors.As(err, &op) {
		return op.Op != "remote error" && op.Op != "local error" // alerts of TLS: a refused certificate
	}
	return errors.As(err, &name) || errors.As(err, &timeout) && timeout.Timeout()
}

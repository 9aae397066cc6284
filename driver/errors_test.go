package driver_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A store that does not answer is told from one that has answered, though with a refusal.
func TestIsUnavailable(t *testing.T) {
	refused := errors.New("refused")
	for _, err := range []error{
		driver.Unavailable(refused), context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed,
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, os.ErrDeadlineExceeded,
		&net.OpError{Op: "dial", Err: refused}, &net.DNSError{Err: "no such host", Name: "a"},
	} {
		if !driver.IsUnavailable(err) || !driver.IsUnavailable(fmt.Errorf("asked: %w", err)) {
			t.Errorf("%v is not taken for a store that does not answer", err)
		}
		for _, answer := range []error{driver.ErrLost, driver.ErrNotAcquired, driver.ErrClosed} {
			if driver.IsUnavailable(errors.Join(err, answer)) {
				t.Errorf("%v with %v is taken for a store that does not answer", err, answer)
			}
		}
	}
	for _, err := range []error{
		nil, refused, context.Canceled, driver.ErrUnsupported, driver.NoTicket(refused),
		&net.OpError{Op: "remote error", Err: tls.AlertError(42)}, &net.OpError{Op: "local error", Err: tls.AlertError(42)},
		&net.AddrError{Err: "too many colons", Addr: "a"}, // a net.Error, and no timeout
	} {
		if driver.IsUnavailable(err) {
			t.Errorf("%v is taken for a store that does not answer", err)
		}
	}
}

// A mark wraps the error and keeps its text; no error stays none, and a second mark changes nothing.
func TestMarks(t *testing.T) {
	refused := errors.New("refused")
	for sentinel, mark := range map[error]func(error) error{driver.ErrUnavailable: driver.Unavailable, driver.ErrNoTicket: driver.NoTicket} {
		err := mark(refused)
		if !errors.Is(err, sentinel) || !errors.Is(err, refused) || err.Error() != "refused" {
			t.Errorf("%v is not %v with that text", err, sentinel)
		}
		if again := mark(err); again != err { //nolint:errorlint // the same one
			t.Errorf("%v is marked twice", err)
		}
		if mark(nil) != nil {
			t.Errorf("no error is %v", sentinel)
		}
	}
}

// bounded is a driver that states its bounds.
type bounded struct{ driver.Driver }

func (bounded) Bounds(ttl time.Duration) driver.Bounds { return driver.Bounds{Crash: 2 * ttl} }

// A driver that states no bounds has the usual ones.
func TestBoundsOf(t *testing.T) {
	if b := driver.BoundsOf(bounded{}, time.Minute); b.Crash != 2*time.Minute {
		t.Errorf("bounds %+v, want those of the driver", b)
	}
	if b := driver.BoundsOf(struct{ driver.Driver }{}, time.Minute); b.Crash != time.Minute+time.Second || b.Liveness != 5*time.Second {
		t.Errorf("bounds %+v of a driver that states none", b)
	}
}

// A hold and a ticket are those of the request.
func TestOfRequest(t *testing.T) {
	r := driver.Request{Name: "a", ID: "1", Owner: "me", Note: "job", Shared: true, Limit: 3}
	if got, want := r.Hold(7), (driver.Hold{Name: "a", ID: "1", Token: 7, Shared: true}); got != want {
		t.Errorf("hold %+v, want %+v", got, want)
	}
	if got, want := r.Ticket(7), (driver.Ticket{ID: "1", Token: 7, Owner: "me", Note: "job", Shared: true, Limit: 3}); got != want {
		t.Errorf("ticket %+v, want %+v", got, want)
	}
}

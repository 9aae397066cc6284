package locker_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

func TestErrorsNameStoreVerbAndLock(t *testing.T) {
	s := newStub()
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		return driver.Grant{}, errDown
	}
	l := locker.New(s)
	defer l.Close()
	_, err := l.Acquire(context.Background(), "order:42")
	if got, wanted := err.Error(), `locker: acquire "order:42" on memory: store is down`; got != wanted {
		t.Errorf("got  %s\nwant %s", got, wanted)
	}
	var e *locker.Error
	if !errors.As(err, &e) || e.Op != "acquire" || e.Name != "order:42" || e.Store != "memory" {
		t.Errorf("%#v", e)
	}
}

// What a driver has joined and marked is told once, on one line.
func TestErrorsAreNotRepeated(t *testing.T) {
	s := newStub()
	s.acquire = func(ctx context.Context, _ driver.Request, _ acquireFunc) (driver.Grant, error) {
		<-ctx.Done()
		return driver.Grant{}, driver.NoTicket(driver.Unavailable(errors.Join(context.Cause(ctx), errDown)))
	}
	l := locker.New(s)
	defer l.Close()
	_, err := l.Acquire(context.Background(), "a", locker.WithWait(10*time.Millisecond))
	const wanted = `locker: acquire "a" on memory: store unavailable: the store did not answer within 10ms: the wait limit has passed: store is down`
	if got := err.Error(); got != wanted {
		t.Errorf("got  %s\nwant %s", got, wanted)
	}
	want(t, err, locker.ErrUnavailable)
	want(t, err, errDown)
}

// The errors of pgx have a list of addresses below a line that ends with a colon.
func TestErrorsOfSeveralLinesAreOne(t *testing.T) {
	s := newStub()
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		list := fmt.Errorf("%w\r\n\n\t%w", errDown, errDown)
		return driver.Grant{}, driver.NoTicket(fmt.Errorf("failed to connect to `database=x`:\n\t%w", list))
	}
	l := locker.New(s)
	defer l.Close()
	_, err := l.Acquire(context.Background(), "a")
	const wanted = "locker: acquire \"a\" on memory: failed to connect to `database=x`: store is down: store is down"
	if got := err.Error(); got != wanted {
		t.Errorf("got  %q\nwant %q", got, wanted)
	}
}

// An error repeats no name that is longer than a name can be.
func TestErrorsAreShort(t *testing.T) {
	l := locker.New(newStub())
	defer l.Close()
	long := strings.Repeat("x", 1<<20)
	_, acquired := l.Acquire(context.Background(), long)
	_, inspected := l.Inspect(context.Background(), long)
	_, all := locker.AcquireAll(context.Background(), l, []string{"a", long})
	for _, err := range []error{acquired, inspected, all} {
		want(t, err, locker.ErrInvalidName)
		if n := len(err.Error()); n > 1000 {
			t.Errorf("an error of %d bytes", n)
		}
	}
}

// Errors of the network are ErrUnavailable from every call; a refusal is not.
func TestUnavailable(t *testing.T) {
	s := newStub()
	var answer error
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		return driver.Grant{}, driver.NoTicket(answer)
	}
	l := locker.New(s)
	defer l.Close()
	for _, err := range []error{errRefused, fmt.Errorf("read: %w", syscall.ECONNRESET), driver.Unavailable(errors.New("no leader"))} {
		answer = err
		_, got := l.Acquire(context.Background(), "a")
		want(t, got, locker.ErrUnavailable)
		want(t, got, err)
	}
	for _, err := range []error{
		errors.New("wrong password"),
		&url.Error{Op: "Put", URL: "https://h", Err: x509.UnknownAuthorityError{}},
		&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")},
	} {
		answer = err
		if _, err := l.Acquire(context.Background(), "a"); errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("%v is ErrUnavailable", err)
		}
	}
}

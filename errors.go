package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lockerproject/locker/driver"
)

// Sentinels; test for them with errors.Is.
var (
	// ErrNotAcquired: the lock cannot be had now (TryAcquire), or was not
	// granted within WithWait (Acquire): somebody else has it. No ticket is
	// left in the queue.
	ErrNotAcquired = driver.ErrNotAcquired
	// ErrUnavailable: the store did not answer, or refused everybody (it is
	// down, has no leader, takes no connection). It says nothing of who holds the
	// lock. The error wraps the store's own.
	ErrUnavailable = driver.ErrUnavailable
	// ErrLost: the lease ended before it was released. Somebody else may hold
	// the lock.
	ErrLost = driver.ErrLost
	// ErrReleased: this handle has been released.
	ErrReleased = errors.New("lock released")
	// ErrClosed: the Locker has been closed.
	ErrClosed = driver.ErrClosed
	// ErrInvalidName: a lock name is valid UTF-8 of 1 to 512 bytes.
	ErrInvalidName = errors.New("invalid lock name")
	// ErrInvalidOption: an option or a URL makes no sense; the text says which.
	ErrInvalidOption = driver.ErrInvalidOption
	// ErrUnsupported: this store cannot do what was asked.
	ErrUnsupported = driver.ErrUnsupported
	// ErrUpgrade: a reader asked to write. It would wait for itself.
	ErrUpgrade = errors.New("a shared lock cannot be upgraded to an exclusive one")
)

// Error is what the methods of Client and Lock return: it says what was done,
// to which lock, on which store, and wraps the cause.
type Error struct {
	Op    string // "acquire", "release", …
	Name  string // of the lock; empty for operations on the store as a whole
	Store string // as the driver names itself, without credentials
	Err   error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("locker: %s on %s: %v", e.Op, e.Store, e.Err)
	}
	return fmt.Sprintf("locker: %s %q on %s: %v", e.Op, e.Name, e.Store, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// fail wraps err once, where the verb and the name are known. Nil stays nil.
func (c *Client) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Store: c.store, Err: err}
}

// unanswered marks a store's error as ErrUnavailable when it is one of the
// network: drivers mark those that only their store has.
func unanswered(err error) error {
	if driver.IsUnavailable(err) {
		return driver.Unavailable(err)
	}
	return err
}

// because says why a call has ended, joined with the store's error. It leaves
// out the reasons that are there already, and the parts of the store's error
// that say no more than that a context has ended.
func because(err error, reasons ...error) error {
	var all causes
	for _, e := range reasons {
		if e != nil && !errors.Is(all, e) {
			all = append(all, e)
		}
	}
	for _, e := range parts(err) {
		if e != context.Canceled && e != context.DeadlineExceeded && //nolint:errorlint // the bare sentinels
			!slices.Contains(all, e) && !isOneOf(e, reasons) {
			all = append(all, e)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// isOneOf reports whether e says no more than one of the reasons does.
func isOneOf(e error, reasons []error) bool {
	for _, r := range reasons {
		if r != nil && e.Error() == r.Error() {
			return true
		}
	}
	return false
}

// parts takes errors.Join apart.
func parts(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		if err == nil {
			return nil
		}
		return []error{err}
	}
	var all []error
	var texts []string
	for _, e := range joined.Unwrap() {
		all = append(all, parts(e)...)
		texts = append(texts, e.Error())
	}
	if err.Error() != strings.Join(texts, "\n") {
		return []error{err} // it wraps several errors, and has a text of its own
	}
	return all
}

// causes is errors.Join on one line.
type causes []error

func (j causes) Error() string {
	texts := make([]string, len(j))
	for i, e := range j {
		texts[i] = e.Error()
	}
	return strings.Join(texts, ": ")
}

func (j causes) Unwrap() []error { return j }

// several is what went wrong with several locks: its text is that of the first.
type several struct{ errs []error }

func (s *several) Error() string {
	if len(s.errs) == 1 {
		return s.errs[0].Error()
	}
	return fmt.Sprintf("%v (and %d more errors)", s.errs[0], len(s.errs)-1)
}

func (s *several) Unwrap() []error { return s.errs }

// contextError is the error of a context that has ended, with its cause.
func contextError(ctx context.Context) error {
	return because(nil, ctx.Err(), context.Cause(ctx))
}

// undecided says of a release without an answer what becomes of the lock.
func undecided(err error) error {
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("%w (the release goes on in the background; at the latest the lease ends by itself)", unanswered(err))
}

package locker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/marked"
)

// Test for these errors with errors.Is.
var (
	// ErrNotAcquired: the lock cannot be granted now (TryAcquire), or was not
	// granted within WithWait (Acquire), because somebody else has it. No ticket is
	// left in the queue.
	ErrNotAcquired = driver.ErrNotAcquired
	// ErrUnavailable: the store did not answer, or refused everybody (it is down, has
	// no leader, accepts no connection). Who holds the lock is not known. The error
	// wraps the store's own. Test for it before ErrNotAcquired: see the package comment.
	ErrUnavailable = driver.ErrUnavailable
	// ErrLost: the lease ended before it was released. Somebody else may hold
	// the lock. Acquire and TryAcquire never return it.
	ErrLost = driver.ErrLost
	// ErrReleased: this handle has been released.
	ErrReleased = errors.New("lock released")
	// ErrClosed: the Locker has been closed.
	ErrClosed = driver.ErrClosed
	// ErrInvalidName: a lock name is valid UTF-8 of 1 to 512 bytes.
	ErrInvalidName = errors.New("invalid lock name")
	// ErrInvalidOption: an option or a URL is invalid; the text says which.
	ErrInvalidOption = driver.ErrInvalidOption
	// ErrUnsupported: this store cannot do what was asked.
	ErrUnsupported = driver.ErrUnsupported
	// ErrUpgrade: the holder of a shared lock asked for the exclusive one. It would
	// wait for itself.
	ErrUpgrade = errors.New("a shared lock cannot be upgraded to an exclusive one")
)

// Error is the error of the methods of Client, Lock, Mutex, RWMutex and Semaphore, and of
// AcquireAll. It names the operation, the lock and the store, and wraps the cause.
type Error struct {
	Op    string // "acquire", "release", …
	Name  string // of the lock; of several, as Lock.Name has them; empty for operations on the store as a whole
	Store string // as the driver names itself, without credentials; empty if a wrapper hides it
	Err   error
}

// Error implements error.
func (e *Error) Error() string {
	text := "locker: " + e.Op
	if e.Name != "" {
		text += fmt.Sprintf(" %.*q", maxText, e.Name)
	}
	if len(e.Name) > maxText { // an invalid name, or several
		text += "…"
	}
	if e.Store != "" {
		text += " on " + e.Store
	}
	return text + ": " + oneLine(fmt.Sprint(e.Err))
}

// oneLine joins the lines of a text: a driver may have joined errors, and pgx indents a list of
// them below a line that ends with a colon.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSuffix(strings.TrimSpace(line), ":"); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, ": ")
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// fail wraps err once, where the operation and the name are known. Nil stays nil.
func (c *core) fail(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Store: c.store, Err: err}
}

// failOn is fail for what is built on a Locker.
func failOn(l Locker, op, name string, err error) error {
	e := &Error{Op: op, Name: name, Err: err}
	if s, ok := l.(interface{ Store() string }); ok {
		e.Store = s.Store()
	}
	return e
}

// unanswered marks an error of the network as ErrUnavailable. Drivers mark those
// that are specific to their store.
func unanswered(err error) error {
	if driver.IsUnavailable(err) {
		return driver.Unavailable(err)
	}
	return err
}

// because joins the reasons why a call has ended with the store's error. It leaves
// out repeated reasons, and the parts of the store's error that only say that a
// context has ended.
func because(err error, reasons ...error) error {
	var all causes
	for _, e := range reasons {
		if e != nil && !errors.Is(all, e) {
			all = append(all, e)
		}
	}
	for _, e := range parts(err) {
		if e != context.Canceled && e != context.DeadlineExceeded && //nolint:errorlint // the bare sentinels
			!isOneOf(e, all) && !isOneOf(e, reasons) {
			all = append(all, unanswered(e))
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return all
}

// isOneOf reports whether e has the same text as one of the reasons. Errors need not be
// comparable.
func isOneOf(e error, reasons []error) bool {
	for _, r := range reasons {
		if r != nil && e.Error() == r.Error() {
			return true
		}
	}
	return false
}

// parts returns the errors that errors.Join has joined, and that the driver may have marked as
// ErrUnavailable. The mark of driver.NoTicket goes: the core has looked at it by now.
func parts(err error) []error {
	if m, ok := err.(*marked.Error); ok { //nolint:errorlint // only what is marked itself
		all := parts(m.Err)
		if errors.Is(m.Sentinel, ErrUnavailable) {
			for i, e := range all {
				all[i] = driver.Unavailable(e)
			}
		}
		return all
	}
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
		if e != nil {
			all = append(all, parts(e)...)
			texts = append(texts, e.Error())
		}
	}
	if err.Error() != strings.Join(texts, "\n") {
		return []error{err} // not by errors.Join: it has a text of its own
	}
	return all
}

// causes are joined errors with a text of one line.
type causes []error

func (j causes) Error() string {
	texts := make([]string, len(j))
	for i, e := range j {
		texts[i] = e.Error()
	}
	return strings.Join(texts, ": ")
}

func (j causes) Unwrap() []error { return j }

// several are the errors of several locks. The text has the first one, and how many
// more there are.
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
	err := ctx.Err()
	return because(nil, err, foreign(err, context.Cause(ctx)))
}

// foreign returns the cause with which a caller's context ended with err, as text only.
// The cause may be anything, such as the ErrNotAcquired of another acquisition, and says
// nothing about this one.
func foreign(err, cause error) error {
	if cause == nil || errors.Is(err, cause) {
		return nil
	}
	return errors.New(cause.Error())
}

// unconfirmed adds to the error of an unanswered release what happens next.
func unconfirmed(err error) error {
	if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrClosed) {
		return err
	}
	return fmt.Errorf("%w (the release continues in the background, at the latest until the lease ends)", unanswered(err))
}

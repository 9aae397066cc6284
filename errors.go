package locker

import (
	"errors"
	"fmt"

	"github.com/lockerproject/locker/driver"
)

// Sentinels; test for them with errors.Is.
var (
	// ErrNotAcquired: the lock cannot be had now (TryAcquire), or was not
	// granted within WithWait (Acquire). No ticket is left in the line.
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
	// ErrInvalidOption: an option makes no sense; the text says which.
	ErrInvalidOption = errors.New("invalid option")
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

package fence

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/lockerproject/locker"
)

// ErrStale means that a holder with a greater token has used the resource or, from
// the stricter guards, that the lock is not held any more. Nothing was changed. Give up
// the work, and acquire the lock again to start over.
var ErrStale = errors.New("stale fencing token")

// StaleError is the ErrStale of a guard that compares tokens.
type StaleError struct {
	Name  string // of the lock
	Token uint64 // of the late holder
	Seen  uint64 // the greater token of a later one
}

// Error implements error.
func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: %v %d of %q: token %d was seen", ErrStale, e.Token, e.Name, e.Seen)
}

// Unwrap returns ErrStale.
func (e *StaleError) Unwrap() error { return ErrStale }

// Lock is what a guard needs to know of a lock. A *[locker.Lock] is one, also
// one of AcquireAll, whose members are fenced each by its own name and token.
type Lock = interface {
	Name() string
	Token() uint64
}

// Token makes a Lock from a name and a token that came with a request from the
// process that holds the lock.
func Token(name string, token uint64) Lock { return received{name, token} }

type received struct {
	name  string
	token uint64
}

func (r received) Name() string  { return r.name }
func (r received) Token() uint64 { return r.token }

// Members returns the locks that a guard compares, each with its own name and
// token: the members of AcquireAll, sorted by name, or lock alone. Use it to write a
// guard for another resource. An invalid lock name is locker.ErrInvalidName. A nil
// or zero lock, and a token that is not between 1 and 2^63-1, are
// locker.ErrInvalidOption.
func Members(lock Lock) ([]Lock, error) {
	if k, ok := lock.(*locker.Lock); lock == nil || ok && k == nil {
		return nil, fmt.Errorf("fence: %w: no lock", locker.ErrInvalidOption)
	}
	members := []Lock{lock}
	if group, ok := lock.(interface{ Locks() []*locker.Lock }); ok {
		members = members[:0]
		for _, k := range group.Locks() {
			members = append(members, k)
		}
	}
	if len(members) == 0 { // the zero Lock
		return nil, fmt.Errorf("fence: %w: no lock", locker.ErrInvalidOption)
	}
	for _, k := range members {
		if err := check(k.Name(), k.Token()); err != nil {
			return nil, fmt.Errorf("fence: %w", err)
		}
	}
	return members, nil
}

// maxName is the longest name of a lock, in bytes.
const maxName = 512

func check(name string, token uint64) error {
	switch {
	case name == "" || len(name) > maxName || !utf8.ValidString(name):
		return fmt.Errorf("%w: %d bytes: want UTF-8 of 1 to %d bytes", locker.ErrInvalidName, len(name), maxName)
	case token == 0 || token > math.MaxInt64:
		return fmt.Errorf("%w: token %d of %q: want 1 to %d", locker.ErrInvalidOption, token, name, int64(math.MaxInt64))
	}
	return nil
}

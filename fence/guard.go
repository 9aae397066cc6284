package fence

import (
	"fmt"
	"sync"

	"github.com/lockerproject/locker"
)

// Guard fences a resource in the memory of one process. Give every resource a
// Guard in place of its mutex. The zero Guard is ready for use; it must not be
// copied. All methods may be called from many goroutines at once.
//
// A Guard forgets its fences with the process, and accepts any token afterwards.
// If the resource outlives the process, save the token with it, and raise the
// fence again at the start, with Do and [Token].
type Guard struct {
	mu   sync.Mutex
	seen map[string]uint64 // the greatest token of each name
}

// Do compares the token of lock with the fence of its name, raises the fence, and
// runs fn. Calls of one Guard run one after the other, so that fn is alone
// with the resource; fn must not call Do of the same Guard. If the token is smaller
// than the fence, Do returns a [StaleError] and does not run fn. Otherwise it
// returns fn's result; the fence stays raised if that is an error.
func (g *Guard) Do(lock Lock, fn func() error) error {
	members, err := Members(lock)
	if err != nil {
		return err
	}
	if fn == nil {
		return fmt.Errorf("fence: %w: no function", locker.ErrInvalidOption)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.raise(members); err != nil {
		return err
	}
	return fn()
}

// raise raises the fences of all members or, if one is stale, of none. With mu held.
func (g *Guard) raise(members []Lock) error {
	for _, k := range members {
		if seen := g.seen[k.Name()]; k.Token() < seen {
			return &StaleError{Name: k.Name(), Token: k.Token(), Seen: seen}
		}
	}
	if g.seen == nil {
		g.seen = make(map[string]uint64)
	}
	for _, k := range members {
		g.seen[k.Name()] = k.Token()
	}
	return nil
}

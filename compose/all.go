package compose

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// All returns a driver that holds a name on every one of several stores: a lock is
// granted when all have granted it, and lost when one has lost it. It is for
//
//   - a layered lock: a cheap store first, on which most of the waiting happens,
//     and the authority last;
//   - several independent stores that must all agree (the MultiLock of Redisson);
//   - moving from one store to another while programs run; see below.
//
// It is as available as the least available of its stores: when one is down,
// nothing is granted and what is held is lost when it cannot be renewed.
//
// # Order
//
// A ticket queues on the first store, then on the second, and so on, and keeps
// meanwhile what it has got. So the queue is that of the first store, and every
// program must name the stores in the same order, whichever is the authority: two
// programs that name them in different orders wait for each other.
//
// A request that does not wait (TryAcquire) is queued nowhere if it sees that one
// of the stores would refuse it. One that loses a race after that look stands on
// the first stores for a moment, in which another such request may be refused
// though nobody gets the lock.
//
// Tickets with different limits under one name may be granted on the first store
// together and reach the second in another order, so that one of them waits
// though the rule of the first store would grant it. More than the rule allows
// are never granted.
//
// # Tokens
//
// The fencing token is that of one store, the authority: the last one, unless
// [AllDriver.Authority] names another. Inspect shows a waiter with the number that it has
// on the first store until it has one at the authority.
//
// # Moving to another store
//
// Programs are replaced in four steps, each complete before the one after the next
// begins, while they run:
//
//	1  old
//	2  All(old, new).Authority(0)                  tokens of the old store
//	3  All(old, TokenBase(new, n)).Authority(1)    tokens of the new store
//	4  TokenBase(new, n)
//
// Two programs exclude each other if they have a store in common. So steps 1, 2 and
// 3 may run side by side, and so may 2, 3 and 4, but not 1 and 4.
//
// Tokens of two stores do not compare, which is why there is n: a number that no
// token of the old store reaches before step 2 has ended, kept for good (see
// TokenBase). Then tokens grow within each step and from each step to the next. While
// steps with different authorities (1 or 2 with 3 or 4) run side by side, a resource that checks
// tokens refuses the older step's writes to whatever a newer step has written: no
// write is lost, and the program of the older step gets the resource's error. Without
// steps 2 and 3 side by side nothing is refused.
//
// All closes the drivers that it is given. It panics when there are none, or one is
// nil.
func All(drivers ...driver.Driver) *AllDriver {
	if len(drivers) == 0 {
		panic("compose: All: no drivers")
	}
	m := &AllDriver{parts: drivers, authority: len(drivers) - 1, books: make(map[key]*book)}
	for i, d := range drivers {
		if d == nil {
			panic(fmt.Sprintf("compose: All: driver %d is nil", i))
		}
	}
	for _, d := range drivers {
		if n, ok := d.(driver.LossNotifier); ok {
			n.NotifyLoss(m.partLost)
		}
	}
	return m
}

// AllDriver is the driver that All makes.
type AllDriver struct {
	parts     []driver.Driver
	authority int
	tell      func(driver.Hold, error)

	mu    sync.Mutex
	books map[key]*book
}

var (
	_ driver.Driver       = (*AllDriver)(nil)
	_ driver.BatchRenewer = (*AllDriver)(nil)
	_ driver.Lister       = (*AllDriver)(nil)
	_ driver.Breaker      = (*AllDriver)(nil)
	_ driver.LossNotifier = (*AllDriver)(nil)
	_ driver.Bounder      = (*AllDriver)(nil)
	_ driver.Pinger       = (*AllDriver)(nil)
)

// book is what is known of one ticket, from its Acquire until its removal is
// confirmed. AllDriver.mu guards it.
type book struct {
	tokens   []uint64    // by part; 0: not granted there
	released []bool      // by part: the store has confirmed
	granted  bool        // on all
	lost     error       // a part is lost, before granted
	end      func(error) // ends the Acquire that is under way
}

// Authority makes the i-th store, counted from 0, the one whose tokens the locks
// have, and returns m. It is called before m is used, and panics when there is no
// such store.
func (m *AllDriver) Authority(i int) *AllDriver {
	if i < 0 || i >= len(m.parts) {
		panic(fmt.Sprintf("compose: Authority(%d) of %d drivers", i, len(m.parts)))
	}
	m.authority = i
	return m
}

// String names the stores.
func (m *AllDriver) String() string {
	names := make([]string, len(m.parts))
	for i, d := range m.parts {
		names[i] = nameOf(d)
	}
	return "all of " + strings.Join(names, " and ")
}

// NotifyLoss implements driver.LossNotifier.
func (m *AllDriver) NotifyLoss(tell func(driver.Hold, error)) { m.tell = tell }

// partLost is told by a part that can push.
func (m *AllDriver) partLost(h driver.Hold, cause error) {
	m.mu.Lock()
	b := m.books[keyOf(h)]
	if b == nil {
		m.mu.Unlock()
		return
	}
	h.Token = b.tokens[m.authority]
	granted := b.granted
	if !granted && b.lost == nil {
		b.lost = cause
	}
	m.mu.Unlock()
	switch {
	case !granted:
		b.end(cause)
	case m.tell != nil:
		m.tell(h, cause)
	}
}

// Bounds implements driver.Bounder: the worst of the parts'. A waiter that died while
// it held the name on the first stores delays the queue as a dead holder does.
func (m *AllDriver) Bounds(ttl time.Duration) driver.Bounds {
	var all driver.Bounds
	for _, d := range m.parts {
		b := driver.BoundsOf(d, ttl)
		all.MinTTL = max(all.MinTTL, b.MinTTL)
		all.Crash = max(all.Crash, b.Crash)
		all.Liveness += b.Liveness
		if b.MaxTTL > 0 && (all.MaxTTL == 0 || b.MaxTTL < all.MaxTTL) {
			all.MaxTTL = b.MaxTTL
		}
	}
	if len(m.parts) > 1 {
		all.Liveness += all.Crash
	}
	return all
}

// Ping implements driver.Pinger: all stores have to answer.
func (m *AllDriver) Ping(ctx context.Context) error {
	return m.each(func(_ int, d driver.Driver) error { return ping(ctx, d) })
}

// Close implements driver.Driver.
func (m *AllDriver) Close() error {
	return m.each(func(_ int, d driver.Driver) error { return d.Close() })
}

// each calls f for all parts at once, and joins what went wrong.
func (m *AllDriver) each(f func(i int, d driver.Driver) error) error {
	errs := make([]error, len(m.parts))
	var group sync.WaitGroup
	for i, d := range m.parts {
		group.Go(func() {
			if err := f(i, d); err != nil {
				errs[i] = fmt.Errorf("%s: %w", nameOf(d), err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

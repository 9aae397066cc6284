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
//   - a layered lock: a cheap store first, where most of the waiting happens, and the
//     authority last;
//   - several independent stores that must all agree (the MultiLock of Redisson);
//   - moving from one store to another while programs run; see below.
//
// It is as available as the least available of its stores: while one is down nothing
// is granted, and locks that cannot be renewed are lost.
//
// # Order
//
// A ticket is queued on the first store, then on the second, and so on; it holds the
// name on the earlier stores meanwhile. So the first store orders the queue. Every
// program must name the stores in the same order, whichever is the authority:
// otherwise two programs may wait for each other.
//
// A request that does not wait (TryAcquire) first inspects all stores, and is not
// queued if one of them would refuse it. If a later store refuses it all the same, it
// has held the name on the earlier stores for a moment. In that moment another such
// request may be refused, though nobody gets the lock.
//
// Tickets of one name with different limits that are granted together on the first store
// may reach the second in another order. Then one of them waits although the first store
// would grant it. No more tickets are granted than the grant rule allows.
//
// # Tokens
//
// The fencing token is the token of one store, the authority: the last store, unless
// [AllDriver.Authority] names another. Inspect shows a ticket with its number on the
// first store until it has one on the authority, and as held while it is on its way there.
// coord.Barrier needs numbers that stay, and that order the queue: those of the first store.
//
// # Moving to another store
//
// Replace the programs in four steps, one program at a time:
//
//	1  old
//	2  All(old, new).Authority(0)                  tokens of the old store
//	3  All(old, TokenBase(new, n)).Authority(1)    tokens of the new store
//	4  TokenBase(new, n)
//
// Two programs exclude each other if they have a store in common. So programs of steps
// 1, 2 and 3 may run at the same time, and programs of 2, 3 and 4, but not of 1 and 4:
// step 4 begins when the last program of step 1 has ended.
//
// Tokens of two stores cannot be compared. Therefore n is a number that no token of the
// old store reaches before step 2 has ended. It stays for good (see TokenBase). With it
// tokens grow within each step and from each step to the next. Programs with different
// authorities (steps 1 or 2, and 3 or 4) may run at the same time. Then a resource that
// checks tokens, and that a newer step has written, refuses writes of an older step: no
// write is lost, and the older program gets the resource's error. If steps 2 and 3 do
// not overlap, nothing is refused.
//
// All closes the drivers that it is given. It panics when there are none, or one is
// nil.
func All(drivers ...driver.Driver) *AllDriver {
	if len(drivers) == 0 {
		panic("compose: All: no drivers")
	}
	m := &AllDriver{parts: drivers, authority: len(drivers) - 1, tasks: newBackground(), books: make(map[key]*book)}
	for i, d := range drivers {
		if d == nil {
			panic(fmt.Sprintf("compose: All: driver %d is nil", i))
		}
	}
	for _, d := range drivers {
		m.orphans = append(m.orphans, newOrphans(d, m.tasks))
		if n, ok := d.(driver.LossNotifier); ok {
			n.NotifyLoss(m.partLost)
		}
	}
	return m
}

// AllDriver is the driver that All makes.
type AllDriver struct {
	parts      []driver.Driver
	authority  int
	notifyLoss func(driver.Hold, error)
	tasks      *background
	orphans    []*orphans // by part

	mu    sync.Mutex
	books map[key]*book
}

var (
	_ driver.Driver       = (*AllDriver)(nil)
	_ driver.BatchRenewer = (*AllDriver)(nil)
	_ driver.Lister       = (*AllDriver)(nil)
	_ driver.Breaker      = (*AllDriver)(nil)
	_ driver.LossNotifier = (*AllDriver)(nil)
	_ driver.Shortener    = (*AllDriver)(nil)
	_ driver.Bounder      = (*AllDriver)(nil)
	_ driver.Pinger       = (*AllDriver)(nil)
)

// book is the state of one ticket, from its Acquire until its removal is confirmed.
// AllDriver.mu guards it.
type book struct {
	parts   []part
	granted bool        // on all
	lost    error       // a part is lost, before granted
	end     func(error) // ends the Acquire that is under way
}

// part is the state of a ticket on one store.
type part struct {
	token   uint64 // 0: not granted there
	asked   bool   // a request was sent
	unknown bool   // a request has no answer
}

// Authority makes the i-th store, counted from 0, the authority, whose tokens the locks
// have, and returns m. Call it before m is used. It panics when there is no such store.
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
func (m *AllDriver) NotifyLoss(notify func(driver.Hold, error)) { m.notifyLoss = notify }

// partLost is called when a part has pushed a loss.
func (m *AllDriver) partLost(h driver.Hold, cause error) {
	m.mu.Lock()
	b := m.books[keyOf(h)]
	if b == nil {
		m.mu.Unlock()
		return
	}
	h.Token = b.parts[m.authority].token
	granted := b.granted
	if !granted && b.lost == nil {
		b.lost = cause
	}
	m.mu.Unlock()
	switch {
	case !granted:
		b.end(cause)
	case m.notifyLoss != nil:
		m.notifyLoss(h, cause)
	}
}

// Bounds implements driver.Bounder: the worst bounds of the parts. A waiter that died while
// it held the name on the first stores delays the queue as a dead holder does. There is no
// Silence: a wait on one part says nothing of the others, so the core asks all of them.
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
	m.tasks.stop()
	defer m.tasks.wait()
	return m.each(func(_ int, d driver.Driver) error { return d.Close() })
}

// each calls f for all parts at once, and joins the errors.
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

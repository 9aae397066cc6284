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
//   - several independent stores that must all agree (as the MultiLock of
//     Redisson);
//   - moving from one store to another while programs run: programs on the old
//     store, then on All(old, new), then on the new one. Each generation excludes
//     the one before it, on the store that they share. All programs of one
//     generation have to be replaced before the generation after the next starts.
//
// A ticket queues on the first store, then on the second, and so on, and holds
// what it has got so far meanwhile. So the order of the queue is that of the first
// store, and every program must name the stores in the same order, or two of
// them wait for each other until a lease ends.
//
// The fencing token is that of the authority: the last store, unless Authority
// names another one. Tokens of two stores do not compare, so that a resource
// which checks tokens refuses programs of the old generation as soon as one with
// greater tokens has written, or those of the new one if theirs are smaller:
// choose the authority, and TokenBase, so that they grow through each step.
//
// A try (TryAcquire) looks at all stores first, and is queued on none if one of
// them would refuse it. A request that loses a race after that may stand on the
// first stores for a moment, in which another try is refused.
//
// All closes the drivers that it is given. It needs one at least.
func All(drivers ...driver.Driver) *Multi {
	if len(drivers) == 0 {
		panic("compose: All: no drivers")
	}
	m := &Multi{parts: drivers, authority: len(drivers) - 1, books: make(map[string]*book)}
	for i, d := range drivers {
		if d == nil {
			panic(fmt.Sprintf("compose: All: driver %d is nil", i))
		}
		if n, ok := d.(driver.LossNotifier); ok {
			n.NotifyLoss(m.partLost)
		}
	}
	return m
}

// Multi is the driver that All makes.
type Multi struct {
	parts     []driver.Driver
	authority int
	tell      func(driver.Hold, error)

	mu    sync.Mutex
	books map[string]*book // by ticket ID
}

var (
	_ driver.Driver       = (*Multi)(nil)
	_ driver.BatchRenewer = (*Multi)(nil)
	_ driver.Lister       = (*Multi)(nil)
	_ driver.Breaker      = (*Multi)(nil)
	_ driver.LossNotifier = (*Multi)(nil)
	_ driver.Bounder      = (*Multi)(nil)
	_ driver.Pinger       = (*Multi)(nil)
)

// book is what is known of one ticket. Multi.mu guards it.
type book struct {
	tokens   []uint64 // by part; 0: not granted there
	released []bool   // by part: the store has confirmed
	granted  bool     // on all
	lost     func(error)
}

// Authority makes the i-th store the one whose tokens the locks have, and returns m.
// It is called before m is used.
func (m *Multi) Authority(i int) *Multi {
	if i < 0 || i >= len(m.parts) {
		panic(fmt.Sprintf("compose: Authority(%d) of %d drivers", i, len(m.parts)))
	}
	m.authority = i
	return m
}

// String names the stores.
func (m *Multi) String() string {
	names := make([]string, len(m.parts))
	for i, d := range m.parts {
		names[i] = name(d)
	}
	return "all of " + strings.Join(names, " and ")
}

func name(d driver.Driver) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d)
}

// NotifyLoss implements driver.LossNotifier.
func (m *Multi) NotifyLoss(tell func(driver.Hold, error)) { m.tell = tell }

// partLost is told by a part that can push.
func (m *Multi) partLost(h driver.Hold, cause error) {
	m.mu.Lock()
	b := m.books[h.ID]
	var during func(error)
	if b != nil {
		during = b.lost
	}
	m.mu.Unlock()
	switch {
	case b == nil:
	case during != nil:
		during(cause)
	case m.tell != nil:
		m.tell(h, cause)
	}
}

// Bounds implements driver.Bounder: the worst of the parts'. Dead waiters may be
// ahead on each of them in turn.
func (m *Multi) Bounds(ttl time.Duration) driver.Bounds {
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
	return all
}

// Ping implements driver.Pinger: all stores have to answer.
func (m *Multi) Ping(ctx context.Context) error {
	return m.each(func(_ int, d driver.Driver) error { return ping(ctx, d) })
}

func ping(ctx context.Context, d driver.Driver) error {
	if p, ok := d.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	_, err := d.Inspect(ctx, "locker/ping")
	return err
}

// Close implements driver.Driver.
func (m *Multi) Close() error {
	return m.each(func(_ int, d driver.Driver) error { return d.Close() })
}

// each calls f for all parts at once, and joins what went wrong.
func (m *Multi) each(f func(i int, d driver.Driver) error) error {
	errs := make([]error, len(m.parts))
	var group sync.WaitGroup
	for i, d := range m.parts {
		group.Go(func() {
			if err := f(i, d); err != nil {
				errs[i] = fmt.Errorf("%s: %w", name(d), err)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

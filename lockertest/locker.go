package lockertest

import (
	"fmt"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// Liveness is how long the ticket of a waiter stays in the queue while its
// process cannot reach the store.
const Liveness = 5 * time.Second

// Locker is a locker.Client on a store in memory, with faults on demand. Use it as a
// locker.Locker, or its Client as a *locker.Client. All methods may be called from many
// goroutines at once.
type Locker struct {
	*locker.Client
	d *faulty
	s *store
}

var _ locker.Locker = (*Locker)(nil)

// store is what the Lockers that were joined share.
type store struct {
	d *memory.Driver // without faults; never closed
	record
}

// New returns a Locker on a new store. Close it, as every Locker.
func New(opts ...locker.ClientOption) *Locker {
	s := &store{d: memory.New()}
	return open(s, opts)
}

// Join returns a Locker of another process on the same store, with a connection and
// faults of its own.
func (l *Locker) Join(opts ...locker.ClientOption) *Locker { return open(l.s, opts) }

func open(s *store, opts []locker.ClientOption) *Locker {
	d := newFaulty(s.d.Join())
	opts = append([]locker.ClientOption{locker.WithObserver(s.observe)}, opts...)
	return &Locker{Client: locker.New(d, opts...), d: d, s: s}
}

// Down makes the store refuse every request of this Locker at once, with
// locker.ErrUnavailable, as a server that is down does.
func (l *Locker) Down() { l.d.set(fault{kind: down}) }

// Hang makes the store leave every request of this Locker without an answer until
// the context of the request ends, as a server that is paused, or a network that
// loses packets, does. Requests that still wait for their answer at Heal get it.
func (l *Locker) Hang() { l.d.set(fault{kind: hung}) }

// Slow makes every request of this Locker take d until the store executes it; zero
// ends that. What the store sends by itself, the grant to a waiter, is not delayed.
func (l *Locker) Slow(d time.Duration) { l.d.set(fault{delay: d}) }

// Heal ends Down, Hang and Slow.
func (l *Locker) Heal() { l.d.set(fault{}) }

// Lose takes away the locks that this Locker holds on name: they are lost when it
// returns, and others may have the name. The end of a session, or an operator, does
// the same to a holder. Lose panics when this Locker does not hold name.
func (l *Locker) Lose(name string) {
	lost := l.d.lose(name)
	if len(lost) == 0 {
		panic(fmt.Sprintf("lockertest: Lose(%q): this Locker does not hold it", name))
	}
	l.s.lose(lost)
}

// Answer sets how the store answers the next acquisitions of name by this Locker, one
// error for each, whether they wait or not; nil lets one pass to the store. It replaces
// an earlier Answer for name.
//
//   - locker.ErrNotAcquired: somebody else has the lock, and keeps it: an
//     acquisition that waits is queued, and waits until its limit.
//   - locker.ErrUnavailable, or an error that wraps it: the store refuses
//     everybody.
//   - any other: the store's own error, such as a missing right.
func (l *Locker) Answer(name string, errs ...error) { l.d.answer(name, errs) }

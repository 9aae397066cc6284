package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker"
)

// take acquires a name that is free, or soon will be.
func (e *env) take(l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	k, err := l.Acquire(e.within(patience), name, opts...)
	e.ok(err, "acquire %q", name)
	return k
}

// takeNow acquires a name that is free, which must not take long.
func (e *env) takeNow(l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	begun := time.Now()
	k := e.take(l, name, opts...)
	e.atMost(time.Since(begun), 2*slack, "acquire %q, which is free,", name)
	return k
}

// atMost fails if what has happened took longer than most.
func (e *env) atMost(took, most time.Duration, what string, args ...any) {
	if took > most {
		e.failf("%s took %v, want at most %v", fmt.Sprintf(what, args...), took, most)
	}
}

// grows fails unless the token of a later grant is greater.
func (e *env) grows(before, after uint64) {
	if after <= before {
		e.failf("token %d was granted after token %d", after, before)
	}
}

// refused tries to acquire a name that is not free.
func (e *env) refused(l locker.Locker, name string, opts ...locker.Option) {
	k, err := l.TryAcquire(e.within(patience), name, opts...)
	if err == nil {
		_ = k.Release(e.ctx)
	}
	e.is(err, locker.ErrNotAcquired, "try to acquire %q, which is not free", name)
}

// release releases locks that are held.
func (e *env) release(locks ...*locker.Lock) {
	for _, k := range locks {
		e.ok(k.Release(e.within(patience)), "release %q", k.Name())
	}
}

// handOver releases a lock, and then the lock of the waiter that is next.
func (e *env) handOver(k *locker.Lock, next *pending) {
	e.release(k)
	e.release(next.granted(patient, "the one before it released"))
}

// releaseFails releases a lock while the store cannot be reached.
func (e *env) releaseFails(k *locker.Lock, why string) {
	begun := time.Now()
	e.unavailable(k.Release(e.ctx), "release while "+why)
	e.atMost(time.Since(begun), storeBound+slack, "release while %s", why)
}

// holds fails if the lock is not held.
func (e *env) holds(k *locker.Lock, why string, args ...any) {
	e.ok(k.Err(), "the holder of %q, %s", k.Name(), fmt.Sprintf(why, args...))
}

// queueOf returns the queue of name, as the control client sees it.
func (e *env) queueOf(name string) []locker.Ticket {
	queue, err := e.control().Inspect(e.within(patience), name)
	e.ok(err, "inspect %q", name)
	return queue.Tickets
}

// awaitQueue waits until the queue of name has n tickets and returns it.
func (e *env) awaitQueue(name string, n int) []locker.Ticket {
	return e.awaitQueueWithin(patient, name, n)
}

// leaves waits until the tickets of failed Acquires have left the queue, and n
// tickets remain.
func (e *env) leaves(name string, n int) []locker.Ticket {
	return e.awaitQueueWithin(slacks(1), name, n)
}

func (e *env) awaitQueueWithin(b bound, name string, n int) (queue []locker.Ticket) {
	e.eventually(b, "inspecting "+name, func() error {
		if queue = e.queueOf(name); len(queue) != n {
			return fmt.Errorf("the queue has %d tickets, want %d: %s", len(queue), n, show(queue))
		}
		return nil
	})
	return queue
}

// empty fails unless the queue is empty and the next Acquire is granted at once.
func (e *env) empty(name string) {
	e.awaitQueueWithin(slacks(1), name, 0)
	e.release(e.takeNow(e.control(), name))
	if queue := e.queueOf(name); len(queue) != 0 {
		e.failf("the queue of %q is %s after all was released", name, show(queue))
	}
}

// show returns a queue as text.
func show(queue []locker.Ticket) string {
	s := "["
	for i, t := range queue {
		if i > 0 {
			s += " "
		}
		kind := "exclusive"
		if t.Shared {
			kind = fmt.Sprintf("shared/%d", t.Limit)
		}
		state := "waits"
		if t.Held {
			state = "holds"
		}
		s += fmt.Sprintf("%d:%s:%s:%s", t.Token, t.Owner, kind, state)
	}
	s += "]"
	if !slices.IsSortedFunc(queue, func(a, b locker.Ticket) int { return cmp.Compare(a.Token, b.Token) }) {
		s += ", not in the order of the tokens (D15)"
	}
	return s
}

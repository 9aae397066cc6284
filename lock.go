package locker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Lock is a handle on a lock that is held, or was. Every Acquire returns a handle
// of its own, also when it re-enters. Each handle is released once, in any order,
// and the store's ticket is removed with the last. All methods may be called from
// many goroutines at once.
type Lock struct {
	c       *Client // nil for a group
	lease   *lease  // nil for a group
	members []*Lock // of AcquireAll, sorted by name
	renews  bool

	mu    sync.Mutex
	gone  bool                      // of a group: Release was called
	err   error                     // nil, then ErrLost or ErrReleased
	done  chan struct{}             // nil until Done is called, or the end
	hooks map[*func(error)]struct{} // run when the handle ends
}

// Name returns the name of the lock. For several (AcquireAll) it returns the names
// in order, separated by commas.
func (k *Lock) Name() string {
	if k.lease != nil {
		return k.lease.hold.Name
	}
	names := make([]string, len(k.members))
	for i, m := range k.members {
		names[i] = m.Name()
	}
	return strings.Join(names, ",")
}

// Owner returns the owner that Inspect shows: the id of WithOwner, or a text that
// names this process.
func (k *Lock) Owner() string {
	if k.lease != nil {
		return k.lease.owner
	}
	return k.members[0].Owner()
}

// Token returns the fencing token. It is greater than the token of every earlier grant
// of the name. For several locks (AcquireAll) it is the greatest. Fencing is per
// name: a resource compares the token of its own name, which Locks has, never the
// group's, because another group may have only some of its names.
func (k *Lock) Token() uint64 {
	if k.lease != nil {
		return k.lease.hold.Token
	}
	var most uint64
	for _, m := range k.members {
		most = max(most, m.Token())
	}
	return most
}

// String returns the name, the token, and whether the lock is held, lost or released.
func (k *Lock) String() string {
	state := "held"
	switch err := k.Err(); {
	case errors.Is(err, ErrLost):
		state = "lost"
	case err != nil:
		state = "released"
	}
	return fmt.Sprintf("lock %q, token %d, %s", k.Name(), k.Token(), state)
}

// Locks returns the locks that AcquireAll took, sorted by name, or k alone. Read
// them, and release k.
func (k *Lock) Locks() []*Lock {
	if k.lease != nil {
		return []*Lock{k}
	}
	return append([]*Lock(nil), k.members...)
}

// Done is closed when the lock is lost or this handle is released.
func (k *Lock) Done() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done == nil {
		k.done = make(chan struct{})
	}
	return k.done
}

// Err returns nil while the lock is held, then ErrLost or ErrReleased. It reads the
// clock: after a pause of the process it reports a loss before Done is closed.
func (k *Lock) Err() error {
	if k.lease != nil {
		if k.c.leases.expire(k.lease, k.c.clock.now()) {
			k.end(ErrLost) // whoever has noticed the loss may not have come to this handle yet
		}
	}
	for _, m := range k.members {
		if err := m.Err(); err != nil {
			k.end(err) // whoever has ended the member may not have come to k yet
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// end ends the handle. It reports false when the handle had ended before. Its contexts have
// ended when Done is closed, and when end returns: the ticket is removed after that.
func (k *Lock) end(err error) bool {
	k.mu.Lock()
	if k.err != nil {
		k.mu.Unlock()
		<-k.Done() // whoever ends it may not have come to all contexts yet
		return false
	}
	k.err = err
	hooks := k.hooks
	k.hooks = nil
	k.mu.Unlock()
	for h := range hooks {
		(*h)(err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.done == nil {
		k.done = closed
	} else {
		close(k.done)
	}
	return true
}

// closed is a channel that is closed: the Done of a Lock that is asked for it after the end.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// onEnd runs f when k ends, or now if it has ended. The function that it returns
// cancels that.
func (k *Lock) onEnd(f func(err error)) (cancel func()) {
	k.mu.Lock()
	if err := k.err; err != nil {
		k.mu.Unlock()
		f(err)
		return func() {}
	}
	defer k.mu.Unlock()
	if k.hooks == nil {
		k.hooks = make(map[*func(error)]struct{})
	}
	k.hooks[&f] = struct{}{}
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.hooks, &f)
	}
}

// Context returns a child of parent for the work that the lock protects. It
// ends when the lock is lost (context.Cause: ErrLost), when this handle is
// released (ErrReleased), or with parent. FromContext finds the lock in it. It uses
// memory until then, so call Context once for a lock that is held for long, and not in a
// loop, unless parent ends.
//
// Acquire of the same name on the same Locker under this context re-enters. Every
// goroutine that gets the context inherits that: two workers started under a held
// lock both re-enter and do not exclude each other. If they have to, acquire with
// WithoutReentry, or another name.
func (k *Lock) Context(parent context.Context) context.Context {
	for _, m := range k.Locks() {
		outer, _ := parent.Value(m.c).(*nest)
		parent = context.WithValue(parent, m.c, &nest{k: m, outer: outer})
	}
	parent = context.WithValue(parent, lockKey{}, k)
	ctx, cancel := context.WithCancelCause(parent)
	forget := k.onEnd(func(err error) {
		go cancel(err) // which also calls methods of parent, a caller's: they may block
		<-ctx.Done()
		_ = context.Cause(ctx) // waits until the contexts that were derived from ctx have ended, too
	})
	context.AfterFunc(ctx, forget)
	return ctx
}

// Extend lengthens the lease to at least ttl from now; it never shortens it. It is
// for fixed leases, and for work that has to outlast an outage of the store. But a store
// with sessions gives no lease that is longer than the session: on etcd and Consul that is as
// long as the TTL of the acquisition, on ZooKeeper as the session of the connection. There the
// Client renews the lease until the end of the extension. The lock is lost earlier in an outage
// that outlasts the session: see Deadline.
// ErrInvalidOption means that ttl is invalid; ErrLost and ErrReleased, that the lock
// is not held any more. After any other error, such as ErrUnavailable, the lease is
// as it was or, if only the answer was lost, longer.
func (k *Lock) Extend(ctx context.Context, ttl time.Duration) error {
	if k.lease == nil {
		return k.extendGroup(ctx, ttl)
	}
	return k.c.fail("extend", k.Name(), k.extend(ctx, ttl))
}

func (k *Lock) extend(ctx context.Context, ttl time.Duration) error {
	if err := (&request{ttl: ttl}).check(k.c.core); err != nil {
		return err
	}
	if err := k.Err(); err != nil {
		return err
	}
	return k.c.leases.extend(k.lease, ttl, func(request func(context.Context) error) error { return k.c.ask(ctx, request) })
}

// Release releases the lock. It works with a ctx that has ended, and returns within
// the bound for a release (WithReleaseTimeout). ErrReleased means that this handle
// was released before, or is being released by Close; ErrLost, that the lock was lost
// (nobody else's lock was touched). Any other error means that the store has not
// confirmed the release: the handle has ended all the same, and the ticket is removed in
// the background as soon as the store answers, or ends with its lease.
func (k *Lock) Release(ctx context.Context) error {
	if k.lease == nil {
		ended, err := k.releaseGroup(ctx)
		deliverEach(ended, (*lease).deliverEnd)
		return err
	}
	ended, err := k.release(ctx, time.Time{})
	if ended {
		k.lease.deliverEnd()
	}
	return err
}

// release is Release until the given time; zero: within a bound of its own. It reports
// whether it has ended the lease: then the caller calls deliverEnd, for which Close waits.
func (k *Lock) release(ctx context.Context, until time.Time) (ended bool, err error) {
	c := k.c
	if c.leases.expire(k.lease, c.clock.recent()) { // after a suspension the store's answer decides
		k.end(ErrLost)
	}
	if !k.end(ErrReleased) {
		return false, c.fail("release", k.Name(), k.Err())
	}
	if !c.tasks.begin() { // Close releases the lease
		return false, c.fail("release", k.Name(), ErrReleased)
	}
	defer c.tasks.done()
	if until.IsZero() {
		until = time.Now().Add(c.releaseTimeout)
	}
	ended, err = c.leases.dropHandle(k)
	if ended {
		err = c.leases.remove(ctx, ctx, k.lease, until)
		c.ends.Add(1)
	}
	return ended, c.fail("release", k.Name(), err)
}

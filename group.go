package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/internal/whole"
)

// AcquireAll takes several names as one lock, all or none. It takes them one after
// the other in the order of their bytes, whatever the order of the arguments, so
// that callers with the same names in different orders do not deadlock. A name that
// is given twice is taken once. A wait limit (WithWait, WithDefaults) bounds the
// whole call, which returns within 100 ms after that, as Acquire does. If a member is
// lost while another name is waited for, the wait ends with ErrLost. When it
// fails, its members are released. A minimum hold (WithMinHold) lasts only for a member that the
// owner held before or has re-entered meanwhile.
//
// The Lock that it returns ends when any of its members is lost. Its Context
// re-enters each of them. Fencing is per name: a resource compares the token of its
// own name, which Lock.Locks has, never the group's.
func AcquireAll(ctx context.Context, l Locker, names []string, opts ...Option) (*Lock, error) {
	if len(names) == 0 {
		return nil, failOn(l, opAll, "", fmt.Errorf("%w: no names", ErrInvalidName))
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, failOn(l, opAll, name, err)
		}
	}
	return acquireAll(ctx, l, slices.Compact(slices.Sorted(slices.Values(names))), opts)
}

// acquireAll is AcquireAll of names that are sorted.
func acquireAll(ctx context.Context, l Locker, names []string, opts []Option) (*Lock, error) {
	group := &Lock{members: make([]*Lock, 0, len(names))}
	complete := false
	defer func() { // also when an observer panics
		if !complete {
			group.giveUp(ctx)
		}
	}()
	all, cancel := whole.Call(ctx)
	defer cancel()
	for _, name := range names {
		k, err := l.Acquire(all, name, opts...)
		if err != nil {
			if ended := group.endedEarly(); ended != nil && errors.Is(err, context.Canceled) && ctx.Err() == nil {
				return nil, failOn(l, opAll, strings.Join(names, ","), ended)
			}
			return nil, err
		}
		for _, m := range k.Locks() { // a wrapper may have taken several
			group.members = append(group.members, m)
			m.c.leases.waiveMinHold(m.lease, true)
			m.onEnd(func(err error) {
				group.end(err)
				go cancel() // which also calls methods of ctx, a caller's: they may block
			})
		}
	}
	if ended := group.endedEarly(); ended != nil {
		return nil, failOn(l, opAll, strings.Join(names, ","), ended)
	}
	for _, m := range group.members {
		m.c.leases.waiveMinHold(m.lease, false)
	}
	complete = true
	return group, nil
}

// endedEarly returns an error if a member has ended while another name was waited for: its
// lease was lost, or the Locker was closed.
func (k *Lock) endedEarly() error {
	ended := k.Err()
	if ended == nil {
		return nil
	}
	if errors.Is(ended, ErrReleased) {
		ended = ErrClosed
	}
	return fmt.Errorf("%w before all were acquired", ended)
}

const opAll = "acquire all"

// undoAllWait is how long AcquireAll waits for its members to be removed when it fails. The Acquire
// that has failed may have come back 80 ms after its limit: see undoWait.
const undoAllWait = 15 * time.Millisecond

// giveUp releases the members that were acquired. What the store has not confirmed after
// undoAllWait is removed in the background.
func (k *Lock) giveUp(ctx context.Context) {
	_, _ = waitForRelease(undoAllWait, func() ([]*lease, error) {
		ended, _, err := k.releaseMembers(ctx, undoWait)
		return ended, err
	}) // the observers are notified
}

// releaseGroup releases all members, even if one of them was lost. It returns the leases
// that it has ended: the caller delivers the events of that.
func (k *Lock) releaseGroup(ctx context.Context) (ended []*lease, err error) {
	before := k.Err()
	k.mu.Lock()
	again := k.gone
	k.gone = true
	k.mu.Unlock()
	k.end(ErrReleased)
	c := k.members[0].c
	if again {
		if !errors.Is(before, ErrLost) {
			before = ErrReleased
		}
		return nil, c.fail("release all", k.Name(), before)
	}
	ended, gone, err := k.releaseMembers(ctx, c.releaseTimeout)
	if gone || errors.Is(before, ErrReleased) { // by Close, or one of the members alone
		err = errors.Join(c.fail("release all", k.Name(), ErrReleased), err)
	}
	return ended, err
}

// releaseMembers releases all members in parallel, the last first, within one bound. gone: one had been released before.
func (k *Lock) releaseMembers(ctx context.Context, bound time.Duration) (ended []*lease, gone bool, err error) {
	var mu sync.Mutex
	n := len(k.members)
	until := time.Now().Add(bound)
	err = tryInParallel(n, releaseParallel, func(i int) error {
		m := k.members[n-1-i]
		last, err := m.release(ctx, until)
		mu.Lock()
		defer mu.Unlock()
		if last {
			ended = append(ended, m.lease)
		}
		gone = gone || errors.Is(err, ErrReleased)
		return ignore(err, ErrReleased)
	})
	return ended, gone, err
}

// extendGroup extends all members, all at once: a store that does not answer takes as long as for one.
func (k *Lock) extendGroup(ctx context.Context, ttl time.Duration) error {
	return tryInParallel(len(k.members), len(k.members), func(i int) error { return k.members[i].Extend(ctx, ttl) })
}

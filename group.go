package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// AcquireAll takes several names as one, all or none. It takes them one after
// the other in the order of their bytes, whatever order the caller gives, so
// callers with the same names in other orders do not deadlock; a name given
// twice is taken once. WithWait bounds the whole.
//
// The Lock it returns ends when any of its members is lost; its Context
// re-enters each of them.
func AcquireAll(ctx context.Context, l Locker, names []string, opts ...Option) (*Lock, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("locker: acquire all: %w: no names", ErrInvalidName)
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, fmt.Errorf("locker: acquire all: %w", err)
		}
	}
	sorted := slices.Compact(slices.Sorted(slices.Values(names)))
	group := &Lock{members: make([]*Lock, 0, len(sorted))}
	begun := time.Now()
	for _, name := range sorted {
		k, err := l.Acquire(ctx, name, waitLeft(opts, begun)...)
		if err != nil {
			return nil, errors.Join(err, group.giveUp(ctx))
		}
		group.members = append(group.members, k)
	}
	for _, k := range group.members {
		k.onEnd(func(err error) { group.memberEnded(err) })
	}
	if group.Err() != nil { // a fixed lease ended while others were waited for
		err := fmt.Errorf("locker: acquire all: %w before all were acquired", ErrLost)
		return nil, errors.Join(err, group.giveUp(ctx))
	}
	return group, nil
}

// waitLeft replaces a WithWait among the options by what is left of it.
func waitLeft(opts []Option, begun time.Time) []Option {
	var r request
	for _, o := range opts {
		if o != nil {
			o(&r)
		}
	}
	if !r.limited || r.wait <= 0 {
		return opts
	}
	left := max(0, r.wait-time.Since(begun))
	return append(slices.Clip(opts), WithWait(left))
}

// memberEnded ends the group with a member that was lost.
func (k *Lock) memberEnded(err error) {
	if errors.Is(err, ErrLost) {
		k.end(ErrLost)
	} else {
		k.end(ErrReleased) // by Close
	}
}

// giveUp releases what was taken, last first.
func (k *Lock) giveUp(ctx context.Context) error {
	var errs []error
	for _, m := range slices.Backward(k.members) {
		errs = append(errs, ignore(ignore(m.Release(ctx), ErrLost), ErrReleased))
	}
	return errors.Join(errs...)
}

// releaseGroup releases all members, also when one of them was lost.
func (k *Lock) releaseGroup(ctx context.Context) error {
	before := k.Err()
	k.end(ErrReleased)
	if errors.Is(before, ErrReleased) {
		return fmt.Errorf("locker: release all: %w", ErrReleased)
	}
	var errs []error
	for _, m := range slices.Backward(k.members) {
		errs = append(errs, ignore(m.Release(ctx), ErrReleased))
	}
	return errors.Join(errs...)
}

package gocron

import (
	"context"
	"sync"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockerproject/locker"
)

// Elector is a gocron.Elector: the scheduler that holds the lock leads. It has no
// goroutine: a scheduler that does not lead tries to become the leader at each run of a
// job, so the first whose job is due after the end of a leader is the next leader. The
// Locker renews the lock of the leader.
//
// Make one for each scheduler.
type Elector struct {
	l    locker.Locker
	name string
	opts []locker.Option

	mu   sync.Mutex
	lock *locker.Lock // the present leadership, or one that is over; nil: none yet
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for the lock name on l, which is acquired with opts. A
// leader that dies is replaced when its lease has ended (locker.WithTTL). A nil l is
// locker.ErrInvalidOption; so are invalid opts, from each IsLeader.
func NewElector(l locker.Locker, name string, opts ...locker.Option) (*Elector, error) {
	if l == nil {
		return nil, errNil
	}
	return &Elector{l: l, name: name, opts: with(opts, locker.WithoutReentry())}, nil
}

// IsLeader returns nil if this scheduler leads, or has just become the leader. A leader
// that has lost its lock knows of that before another one is elected.
func (e *Elector) IsLeader(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lock != nil && e.lock.Err() == nil {
		return nil
	}
	k, err := e.l.TryAcquire(ctx, e.name, e.opts...)
	if err != nil {
		return err
	}
	e.lock = k
	return nil
}

// Resign ends the leadership of this scheduler, if it leads, so that another one
// need not wait for the end of its lease. Shut the scheduler down before: else its
// next job may make it the leader again. Closing the Locker resigns, too. The error
// is that of locker.Lock.Release.
func (e *Elector) Resign(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lock == nil || e.lock.Err() != nil {
		return nil
	}
	return e.lock.Release(ctx)
}

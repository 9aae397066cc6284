package gocron

import (
	"context"
	"errors"
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
	m *locker.Mutex

	mu   sync.Mutex
	lock *locker.Lock // the present leadership, or one that is over; nil: none yet
	try  *try         // under way; nil: none
}

// try is one try to become the leader, for all jobs that are due meanwhile.
type try struct {
	done   chan struct{} // closed at the end
	err    error
	gaveUp bool // the job that has tried was removed
}

var _ gocron.Elector = (*Elector)(nil)

// NewElector returns an Elector for the lock name on l, which is acquired with opts and
// without the defaults of l. A leader that dies is replaced when its lease has ended
// (locker.WithTTL). A nil l is locker.ErrInvalidOption; so are invalid opts, from each
// IsLeader.
func NewElector(l locker.Locker, name string, opts ...locker.Option) (*Elector, error) {
	if l == nil {
		return nil, errNil
	}
	return &Elector{m: locker.NewMutex(l, name, with(append([]locker.Option{locker.WithoutDefaults()}, opts...), locker.WithoutReentry())...)}, nil
}

// IsLeader returns nil if this scheduler leads, or has just become the leader. A leader
// that has lost its lock notices it before another one is elected.
func (e *Elector) IsLeader(ctx context.Context) error {
	for {
		t, mine := e.begin()
		switch {
		case t == nil:
			return nil
		case mine:
			e.acquire(ctx, t)
			return t.err
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if t.err != nil && !t.gaveUp {
			return t.err
		}
	}
}

// begin returns the try under way or else a new one, which the caller makes (mine);
// nil: this scheduler leads.
func (e *Elector) begin() (t *try, mine bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lock != nil && e.lock.Err() == nil {
		return nil, false
	}
	if e.try != nil {
		return e.try, false
	}
	e.try = &try{done: make(chan struct{})}
	return e.try, true
}

// acquire tries to become the leader.
func (e *Elector) acquire(ctx context.Context, t *try) {
	var k *locker.Lock
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if k != nil {
			e.lock = k
		}
		e.try = nil
		close(t.done)
	}()
	k, t.err = e.m.TryLock(ctx)
	t.gaveUp = ctx.Err() != nil
}

// Resign ends the leadership of this scheduler, if it leads, so that another one
// need not wait for the end of its lease. Shut the scheduler down first: otherwise
// its next job may make it the leader again. Closing the Locker resigns, too. The
// error is the one of locker.Lock.Release, which takes its bound if the store does not
// answer (locker.WithReleaseTimeout, 5 s by default).
func (e *Elector) Resign(ctx context.Context) error {
	e.mu.Lock()
	t := e.try
	e.mu.Unlock()
	if t != nil {
		<-t.done // also if ctx has ended: a release works with such a ctx, too
	}
	e.mu.Lock()
	k := e.lock
	e.mu.Unlock()
	if leads := k != nil && k.Err() == nil; !leads {
		return nil
	}
	err := k.Release(ctx)
	if errors.Is(err, locker.ErrReleased) { // by another Resign
		err = nil
	}
	return err
}

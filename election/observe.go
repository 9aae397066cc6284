package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// Leader returns the ticket of the leader: its ID (Owner), its note, the token of
// its term, and since when it leads. ErrNoLeader means that nobody leads.
func (e *Election) Leader(ctx context.Context) (locker.Ticket, error) {
	leader, err := e.holder(ctx)
	if err == nil && leader.Token == 0 {
		err = ErrNoLeader
	}
	if err != nil {
		return locker.Ticket{}, fmt.Errorf("election %q: %w", e.name, err)
	}
	return leader, nil
}

// Candidates returns the tickets of all candidates in the order in which they
// will be elected, the leader first.
func (e *Election) Candidates(ctx context.Context) ([]locker.Ticket, error) {
	q, err := e.l.Inspect(ctx, e.name)
	if err != nil {
		return nil, fmt.Errorf("election %q: %w", e.name, err)
	}
	return q.Tickets, nil
}

// holder returns the ticket of the leader. If nobody leads, Token is 0.
func (e *Election) holder(ctx context.Context) (locker.Ticket, error) {
	q, err := e.l.Inspect(ctx, e.name)
	if err != nil || len(q.Tickets) == 0 || !q.Tickets[0].Held {
		return locker.Ticket{}, err
	}
	return q.Tickets[0], nil
}

// Observe returns the leaders, one after the other: the present one first, then whenever
// another term begins. A ticket with Token 0 means that nobody leads. A slow caller misses
// entries that have been replaced meanwhile, but never the last one.
//
// After locker.ErrUnavailable the sequence goes on, once the store answers again.
// Any other error, and the end of ctx, is the last entry. An entry with an error has the
// ticket of the entry before: an outage ends no term. Before the first entry without an
// error, nobody knows who leads.
func (e *Election) Observe(ctx context.Context) iter.Seq2[locker.Ticket, error] {
	return func(yield func(locker.Ticket, error) bool) {
		o := &observer{e: e, pause: newBackoff()}
		for o.step(ctx, yield) {
		}
	}
}

// observer is the state of one observer.
type observer struct {
	e       *Election
	pause   retry.Backoff
	seen    locker.Ticket // the latest leader, which is reported
	started bool          // seen is set
	failing bool          // the outage is reported
}

// step inspects the election once, reports what is new, and waits until there may be something
// else. It reports false at the end.
func (o *observer) step(ctx context.Context, yield func(locker.Ticket, error) bool) bool {
	leader, err := o.e.holder(ctx)
	if err != nil {
		return o.failed(ctx, err, yield)
	}
	o.failing = false
	if !o.started || leader.Token != o.seen.Token {
		o.seen, o.started = leader, true
		o.pause.Reset()
		if !yield(leader, nil) {
			return false
		}
	} else if !o.sleep(ctx, leader) {
		return o.failed(ctx, ctx.Err(), yield)
	}
	if leader.Token == 0 {
		return true
	}
	if err := o.wait(ctx, o.e.termName(leader.Token)); err != nil {
		return o.failed(ctx, err, yield)
	}
	return true
}

// sleep waits before the next inspection when nothing has changed: nobody leads, or
// the leader does not hold its term lock, yet or any more.
func (o *observer) sleep(ctx context.Context, leader locker.Ticket) bool {
	most := pauseMost
	if leader.Token != 0 { // nobody else leads before its lease ends
		most = max(pauseFirst, min(most, leader.Remaining))
	}
	return retry.Sleep(ctx, min(o.pause.Next(), most), nil)
}

// failed yields an outage once, and reports whether to go on. It does not yield the
// end of a wait limit of the Locker.
func (o *observer) failed(ctx context.Context, err error, yield func(locker.Ticket, error) bool) bool {
	err = fmt.Errorf("election %q: %w", o.e.name, err)
	if ctx.Err() != nil || !isTransient(err) {
		yield(o.seen, err)
		return false
	}
	if !o.failing && errors.Is(err, locker.ErrUnavailable) {
		o.failing = true
		if !yield(o.seen, err) {
			return false
		}
	}
	retry.Sleep(ctx, o.pause.Next(), nil)
	return true
}

// readTTL is the lease of an observer that wakes up. The observer releases at once; if
// it dies or is paused first, it keeps the lock for no longer than readTTL.
const readTTL = 2 * time.Second

// wait waits until nobody holds the term lock.
func (o *observer) wait(ctx context.Context, lock string) error {
	term := locker.NewRWMutex(o.e.l, lock)
	k, err := o.e.leased(readTTL, func(ttl time.Duration) (*locker.Lock, error) {
		return term.RLock(ctx, locker.WithoutDefaults(), locker.WithTTL(ttl), locker.WithoutRenewal(), locker.WithoutReentry())
	})
	if err != nil {
		return err
	}
	_ = k.Release(ctx) // at the latest its lease ends
	return nil
}

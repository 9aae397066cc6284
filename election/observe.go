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
	leader, _, err := e.inspect(ctx)
	if err == nil && leader.Token == 0 {
		err = ErrNoLeader
	}
	if err != nil {
		return locker.Ticket{}, fmt.Errorf("election %q: %w", e.name, err)
	}
	return leader, nil
}

// Candidates returns the tickets of all candidates in the order in which they
// will be elected, the leader first. The notes are those of their campaigns.
func (e *Election) Candidates(ctx context.Context) ([]locker.Ticket, error) {
	q, err := e.l.Inspect(ctx, e.name)
	if err != nil {
		return nil, fmt.Errorf("election %q: %w", e.name, err)
	}
	return q.Tickets, nil
}

// inspect returns the leader, and the name of its term lock, which is released when
// the term or the note changes. If nobody leads, Token is 0.
func (e *Election) inspect(ctx context.Context) (leader locker.Ticket, termLock string, err error) {
	for {
		before := leader.Token
		if leader, err = e.holder(ctx); err != nil || leader.Token == 0 {
			return locker.Ticket{}, "", err
		}
		if leader.Token == before {
			return leader, e.termName(leader.Token, 0), nil
		}
		notes, err := e.l.Inspect(ctx, e.noteName(leader.Token))
		if err != nil {
			return locker.Ticket{}, "", err
		}
		if n := len(notes.Tickets); n > 0 { // the last is the newest
			newest := notes.Tickets[n-1]
			leader.Note = newest.Note
			return leader, e.termName(leader.Token, newest.Token), nil
		}
		// The leader has proclaimed nothing, or its term has ended meanwhile, and its note too.
	}
}

// holder returns the ticket of the leader with the note of its campaign.
func (e *Election) holder(ctx context.Context) (locker.Ticket, error) {
	q, err := e.l.Inspect(ctx, e.name)
	if err != nil || len(q.Tickets) == 0 || !q.Tickets[0].Held {
		return locker.Ticket{}, err
	}
	return q.Tickets[0], nil
}

// Observe returns the leaders, one after the other: the present one first, then whenever
// another term begins or the leader proclaims another note. A ticket with Token 0 means
// that nobody leads. A slow caller misses entries that have been replaced meanwhile, but
// never the last one.
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
	lock    string        // its term lock
	started bool          // seen is set
	failing bool          // the outage is reported
}

// step inspects the election once, reports what is new, and waits until there may be something
// else. It reports false at the end.
func (o *observer) step(ctx context.Context, yield func(locker.Ticket, error) bool) bool {
	leader, lock, err := o.e.inspect(ctx)
	if err != nil {
		return o.failed(ctx, err, yield)
	}
	o.failing = false
	if !o.started || leader.Token != o.seen.Token || lock != o.lock {
		if !o.report(leader, lock, yield) {
			return false
		}
	} else if !o.sleep(ctx, leader) {
		return o.failed(ctx, ctx.Err(), yield)
	}
	if lock == "" {
		return true
	}
	if err := o.wait(ctx, lock); err != nil {
		return o.failed(ctx, err, yield)
	}
	return true
}

// report yields a leader, unless only the term lock has changed.
func (o *observer) report(leader locker.Ticket, lock string, yield func(locker.Ticket, error) bool) bool {
	known := o.started && leader.Token == o.seen.Token && leader.Note == o.seen.Note
	o.seen, o.lock, o.started = leader, lock, true
	o.pause.Reset()
	return known || yield(leader, nil)
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
	k, err := locker.NewRWMutex(o.e.l, lock).RLock(ctx,
		locker.WithoutDefaults(), locker.WithTTL(readTTL), locker.WithoutRenewal(), locker.WithoutReentry())
	if err != nil {
		return err
	}
	_ = k.Release(ctx) // at the latest its lease ends
	return nil
}

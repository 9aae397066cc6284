package election

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/lockerproject/locker"
)

// Leader returns the ticket of the leader: its ID (Owner), its note, the token of
// its term, and since when it leads. ErrNoLeader says that nobody leads.
func (e *Election) Leader(ctx context.Context) (locker.Ticket, error) {
	const tries = 5
	pause := newPause()
	for i := 1; ; i++ {
		leader, announced, err := e.look(ctx)
		switch {
		case err != nil:
			return locker.Ticket{}, fmt.Errorf("election %q: %w", e.name, err)
		case leader.Token == 0:
			return locker.Ticket{}, fmt.Errorf("election %q: %w", e.name, ErrNoLeader)
		case announced, i == tries:
			return leader, nil
		}
		if !pause.sleep(ctx, pauseFirst) { // the note is being announced
			return locker.Ticket{}, fmt.Errorf("election %q: %w", e.name, ctx.Err())
		}
	}
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

// look asks once who leads, and whether the leader has announced its note; if not,
// the note is that of its campaign. Token 0: nobody leads.
func (e *Election) look(ctx context.Context) (leader locker.Ticket, announced bool, err error) {
	q, err := e.l.Inspect(ctx, e.name)
	if err != nil || len(q.Tickets) == 0 || !q.Tickets[0].Held {
		return locker.Ticket{}, false, err
	}
	leader = q.Tickets[0]
	q, err = e.l.Inspect(ctx, e.termName(leader.Token))
	if err != nil {
		return locker.Ticket{}, false, err
	}
	for _, t := range q.Tickets {
		if !t.Shared { // also one that still waits for observers
			leader.Note, announced = t.Note, true
		}
	}
	return leader, announced, nil
}

// Observe returns the leaders, one after the other: the present one first, then
// whenever another term begins or the leader proclaims another note. A ticket with
// Token 0 says that nobody leads. A caller that takes its time misses what was
// over meanwhile, never the last.
//
// An error says that the store is unavailable; once it answers again the
// sequence goes on. Any other error, and the end of ctx, is the last entry.
func (e *Election) Observe(ctx context.Context) iter.Seq2[locker.Ticket, error] {
	return func(yield func(locker.Ticket, error) bool) {
		o := &observer{e: e, pause: newPause()}
		for o.step(ctx, yield) {
		}
	}
}

// observer is what one observer knows.
type observer struct {
	e       *Election
	pause   *pause
	last    locker.Ticket // reported
	started bool          // last is set
	failing bool          // the error is reported
}

// step looks once, reports what is new, and waits until there may be something
// else. It reports false at the end.
func (o *observer) step(ctx context.Context, yield func(locker.Ticket, error) bool) bool {
	leader, announced, err := o.e.look(ctx)
	if err == nil {
		o.failing = false
		if o.isNews(leader, announced) {
			o.last, o.started = leader, true
			o.pause.reset()
			if !yield(leader, nil) {
				return false
			}
		}
		if announced {
			if err = o.termEnd(ctx, leader.Token); err == nil {
				return true
			}
		}
	}
	if err != nil && !o.failed(ctx, err, yield) {
		return false
	}
	most := pauseMost
	if leader.Token != 0 { // no other leader before its lease ends
		most = max(pauseFirst, min(most, leader.Remaining))
	}
	if !o.pause.sleep(ctx, most) {
		yield(locker.Ticket{}, ctx.Err())
		return false
	}
	return true
}

// isNews reports whether the caller has to hear of a leader. A note that is not
// announced says nothing of a term that is known.
func (o *observer) isNews(leader locker.Ticket, announced bool) bool {
	return !o.started || leader.Token != o.last.Token || announced && leader.Note != o.last.Note
}

// failed reports an error once, and whether to go on.
func (o *observer) failed(ctx context.Context, err error, yield func(locker.Ticket, error) bool) bool {
	if ctx.Err() != nil {
		err = ctx.Err()
	} else {
		err = fmt.Errorf("election %q: %w", o.e.name, err)
	}
	switch {
	case ctx.Err() != nil || !passing(err):
		yield(locker.Ticket{}, err)
		return false
	case o.failing, !errors.Is(err, locker.ErrUnavailable): // a wait limit of the Locker, a lease that was too short
		return true
	}
	o.failing = true
	return yield(locker.Ticket{}, err)
}

// readTTL is the lease of an observer that is told of the end of a term. It
// releases at once; if it dies or is paused first, the leader's next
// announcement waits no longer than that.
const readTTL = 2 * time.Second

// termEnd waits until the leader of a term does not announce it any more, or
// announces it anew.
func (o *observer) termEnd(ctx context.Context, token uint64) error {
	k, err := o.e.l.Acquire(ctx, o.e.termName(token), locker.Shared(),
		locker.WithTTL(readTTL), locker.WithoutRenewal(), locker.WithoutReentry(), locker.WithMinHold(0))
	if err != nil {
		return err
	}
	_ = k.Release(ctx) // at the latest its lease ends
	return nil
}

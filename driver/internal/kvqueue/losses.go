package kvqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// lossDelay is how long a session lives before it is watched for losses (Store.Losses). Then, and
// again after that time, it must have a ticket: a program that takes locks of many lengths, each
// for a moment, does not watch.
const lossDelay = 200 * time.Millisecond

// watchLosses watches a session, until it ends, so that holders and waiters are notified at once
// when a break has ended their tickets, or when the session has ended by itself.
func (e *Engine) watchLosses(ctx context.Context, s *session) {
	for unused := true; unused; {
		if !e.pause(ctx, lossDelay) {
			return
		}
		e.mu.Lock()
		unused = s.tickets == 0
		e.mu.Unlock()
	}
	for pause := newBackoff(); ; {
		begun := time.Now()
		err := e.store.Losses(ctx, s.id, func() { e.check(ctx, s) })
		over := errors.Is(err, ErrSessionOver)
		e.mu.Lock()
		if s.reported = 0; over {
			e.sessionOver(s)
		}
		e.unlock()
		if over {
			return
		}
		if time.Since(begun) > requestBound {
			pause.Reset()
		}
		if !e.pause(ctx, pause.Next()) {
			return
		}
	}
}

// check handles a report: any ticket of the session may have gone.
func (e *Engine) check(ctx context.Context, s *session) {
	e.mu.Lock()
	s.reported = e.tick()
	e.mu.Unlock()
	e.checkUnsure(ctx, s)
}

// checkUnsure finds out which tickets of a session have gone, of those that were not seen since the last report, and has
// their queues read: waiters behind a holder may have gone with it. It repeats that until the store has answered for
// all, since it may be that nobody renews them. A ticket that is being put is looked for before its
// grant.
func (e *Engine) checkUnsure(ctx context.Context, s *session) {
	for pause := newBackoff(); ; {
		var ts []*ticket
		e.mu.Lock()
		for _, t := range e.tickets {
			if t.session == s && (t.state == held || t.state == waiting) && t.unsure() {
				ts = append(ts, t)
			}
		}
		e.mu.Unlock()
		try, cancel := context.WithTimeout(ctx, tryBound)
		missing, err := e.missing(try, ts)
		cancel()
		e.mu.Lock()
		for _, t := range missing {
			t.queue.deleted(Gone{Key: t.Key, Before: t.Number + 1})
		}
		e.unlock()
		if err == nil || !e.pause(ctx, pause.Next()) {
			return
		}
	}
}

// missing returns which tickets have gone. With an error that may not be all.
func (e *Engine) missing(ctx context.Context, ts []*ticket) (missing []*ticket, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards the results
	each(slices.Collect(slices.Chunk(ts, e.opts.MissingMost)), func(some []*ticket) {
		gone, failed := e.missingOf(ctx, some)
		mu.Lock()
		defer mu.Unlock()
		missing = append(missing, gone...)
		if failed != nil && err == nil {
			err = failed
			cancel()
		}
	})
	return missing, err
}

// missingOf sends one request for missing.
func (e *Engine) missingOf(ctx context.Context, ts []*ticket) (missing []*ticket, err error) {
	asked := make([]Ticket, len(ts))
	e.mu.Lock()
	begun := e.tick()
	for i, t := range ts {
		asked[i] = t.Ticket
	}
	e.mu.Unlock()
	at, err := e.store.Missing(ctx, asked)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, t := range ts {
		if slices.Contains(at, i) {
			missing = append(missing, t)
		} else {
			t.seen = begun
		}
	}
	return missing, nil
}

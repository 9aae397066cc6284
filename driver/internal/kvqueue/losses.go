package kvqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// losses is the watches (Store.Losses) that notify holders and waiters at once when a break
// has ended their tickets, or when their session has ended: one for each session. A watch
// begins when a ticket was there for a while. Most are released sooner. Engine.mu guards it.
type losses struct {
	running map[*session]context.CancelFunc
	timer   *time.Timer // of the next review, if one is planned
	at      time.Time   // … and when that is
}

const (
	lossDelay  = 200 * time.Millisecond
	lossLinger = 10 * time.Second
)

// needsLossWatch reports whether the session of a ticket is to be watched.
func (t *ticket) needsLossWatch() bool { return t.state == held || t.state == waiting }

// planLossWatch is called when a ticket waits or is granted. With mu held.
func (e *Engine) planLossWatch(t *ticket) {
	if e.notifyLoss != nil && e.losses.running[t.session] == nil {
		e.reviewAfter(lossDelay)
	}
}

// reviewAfter plans a review, unless an earlier one is planned. With mu held.
func (e *Engine) reviewAfter(delay time.Duration) {
	at := time.Now().Add(delay)
	if e.closed || !e.losses.at.IsZero() && !at.Before(e.losses.at) {
		return
	}
	e.losses.at = at
	if e.losses.timer == nil {
		e.losses.timer = time.AfterFunc(delay, e.review)
		return
	}
	e.losses.timer.Reset(delay)
}

// review starts the watches that are needed, and ends the others.
func (e *Engine) review() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.losses.at = time.Time{}
	needed := make(map[*session]bool)
	for _, t := range e.tickets {
		s := t.session
		if !t.needsLossWatch() {
			continue
		}
		needed[s] = true
		switch {
		case e.losses.running[s] != nil:
		case time.Since(t.since) < lossDelay:
			e.reviewAfter(lossDelay)
		default:
			ctx, cancel := context.WithCancel(e.ctx)
			e.losses.running[s] = cancel
			e.spawn(func() { e.watchLosses(ctx, s) })
		}
	}
	for s, cancel := range e.losses.running {
		if !needed[s] {
			cancel()
			delete(e.losses.running, s)
		}
	}
	if len(e.losses.running) > 0 {
		e.reviewAfter(lossLinger)
	}
}

// watchLosses is the goroutine of a watch.
func (e *Engine) watchLosses(ctx context.Context, s *session) {
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

// check finds out which tickets of a session have gone, and has their queues read: waiters
// behind a holder may have gone with it. It repeats that until the store has answered for
// all, since it may be that nobody renews them. A ticket that is being put is confirmed before
// its grant. One that is being moved is looked for by the renewal that moves it.
func (e *Engine) check(ctx context.Context, s *session) {
	e.mu.Lock()
	s.reported = e.tick()
	e.mu.Unlock()
	for pause := newBackoff(); ; {
		if e.checkUnsure(ctx, s) == nil || !e.pause(ctx, pause.Next()) {
			return
		}
	}
}

// checkUnsure tries once. With an error there are tickets for which it has not been answered.
func (e *Engine) checkUnsure(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	var ts []*ticket
	e.mu.Lock()
	for _, t := range e.tickets {
		if t.session == s && t.moving == nil && t.needsLossWatch() && t.unsure() {
			ts = append(ts, t)
		}
	}
	e.mu.Unlock()
	missing, err := e.missing(ctx, s, ts)
	e.mu.Lock()
	defer e.unlock()
	for _, t := range missing {
		t.queue.removed(Gone{Key: t.Key, Before: t.Number + 1})
		if w := t.queue.watcher; w != nil {
			w.reread()
		}
	}
	return err
}

// missing returns which tickets of a session have gone. With an error that may not be all.
func (e *Engine) missing(ctx context.Context, s *session, ts []*ticket) (missing []*ticket, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards the results
	each(slices.Collect(slices.Chunk(ts, e.opts.MissingMost)), func(some []*ticket) {
		gone, failed := e.missingOf(ctx, s, some)
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
func (e *Engine) missingOf(ctx context.Context, s *session, ts []*ticket) (missing []*ticket, err error) {
	asked := make([]Ticket, len(ts))
	e.mu.Lock()
	begun := e.tick()
	for i, t := range ts {
		asked[i] = t.Ticket
	}
	e.mu.Unlock()
	at, err := e.store.Missing(ctx, s.id, asked)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, t := range ts {
		switch {
		case t.session != s || t.moving != nil: // it may be in another session
		case slices.Contains(at, i):
			missing = append(missing, t)
		default:
			t.seen = begun
		}
	}
	return missing, nil
}

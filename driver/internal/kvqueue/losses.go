package kvqueue

import (
	"context"
	"slices"
	"time"
)

// losses is the watches (Store.Losses) that notify holders at once when a break or an
// operator has ended their tickets: one for each session, or one for all. A watch begins
// when a lock was held for a while. Most are released sooner. Engine.mu guards it.
type losses struct {
	running map[string]context.CancelFunc // by session, or ""
	timer   *time.Timer                   // of the next review, if one is planned
	at      time.Time                     // … and when that is
}

const (
	lossDelay  = 200 * time.Millisecond
	lossLinger = 10 * time.Second
)

// scope returns the session whose watch reports the loss of a ticket, or "". With mu held.
func (e *Engine) scope(t *ticket) string {
	if e.opts.OneLossWatch {
		return ""
	}
	return t.session.id
}

// isCarried reports whether a ticket needs a watch. A waiter does, except with
// OneLossWatch, which would report every release to every process that waits.
func (e *Engine) isCarried(t *ticket) bool {
	return t.state == held || t.state == waiting && !e.opts.OneLossWatch
}

// carries is called when a ticket waits or is granted. With mu held.
func (e *Engine) carries(t *ticket) {
	if !e.opts.Losses || e.notifyLoss == nil || !e.isCarried(t) || e.losses.running[e.scope(t)] != nil {
		return
	}
	e.reviewAfter(lossDelay)
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
	needed := make(map[string]bool)
	for _, t := range e.tickets {
		if !e.isCarried(t) {
			continue
		}
		scope := e.scope(t)
		needed[scope] = true
		switch {
		case e.losses.running[scope] != nil:
		case time.Since(t.since) < lossDelay:
			e.reviewAfter(lossDelay)
		default:
			ctx, cancel := context.WithCancel(e.ctx)
			e.losses.running[scope] = cancel
			e.spawn(func() { e.watchLosses(ctx, scope) })
		}
	}
	for scope, cancel := range e.losses.running {
		if !needed[scope] {
			cancel()
			delete(e.losses.running, scope)
		}
	}
	if len(e.losses.running) > 0 {
		e.reviewAfter(lossLinger)
	}
}

// watchLosses is the goroutine of a watch.
func (e *Engine) watchLosses(ctx context.Context, scope string) {
	for pause := newBackoff(); ; {
		begun := time.Now()
		_ = e.store.Losses(ctx, scope, func(ls ...Loss) { e.lost(ctx, scope, ls) })
		if time.Since(begun) > requestBound {
			pause.Reset()
		}
		if !e.pause(ctx, pause.Next()) {
			return
		}
	}
}

// lost handles news of losses. All are noted before anything is granted: with a holder
// the waiter behind it may have gone.
func (e *Engine) lost(ctx context.Context, scope string, ls []Loss) {
	if slices.ContainsFunc(ls, func(l Loss) bool { return l.Check }) {
		e.check(ctx, scope)
		return
	}
	e.mu.Lock()
	defer e.unlock()
	for _, l := range ls {
		if q := e.queues[l.Name]; q != nil {
			q.removed(l.Gone)
		}
	}
	for _, l := range ls {
		if q := e.queues[l.Name]; q != nil {
			q.settle()
		}
	}
}

// check finds out which tickets have gone, and has their queues read: waiters, which it may
// not have asked for, may have gone, too. If the store does not answer, the next renewal
// finds out.
func (e *Engine) check(ctx context.Context, scope string) {
	ctx, cancel := context.WithTimeout(ctx, requestBound)
	defer cancel()
	bySession := make(map[*session][]*ticket)
	e.mu.Lock()
	for _, t := range e.tickets {
		if e.isCarried(t) && e.scope(t) == scope && t.moving == nil {
			bySession[t.session] = append(bySession[t.session], t)
		}
	}
	e.mu.Unlock()
	for s, ts := range bySession {
		missing, err := e.missing(ctx, s, ts)
		if err != nil {
			return
		}
		e.mu.Lock()
		for _, t := range missing {
			t.queue.removed(Gone{Key: t.Key, Before: t.Number + 1})
			if w := t.queue.watcher; w != nil {
				w.reread()
			}
		}
		e.unlock()
	}
}

// missing returns which tickets of a session have gone.
func (e *Engine) missing(ctx context.Context, s *session, ts []*ticket) ([]*ticket, error) {
	asked := make([]Ticket, len(ts))
	e.mu.Lock()
	for i, t := range ts {
		asked[i] = t.Ticket
	}
	e.mu.Unlock()
	at, err := e.store.Missing(ctx, s.id, asked)
	if err != nil {
		return nil, err
	}
	missing := make([]*ticket, 0, len(at))
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, i := range at {
		// A ticket that was moved meanwhile may be there.
		if t := ts[i]; t.session == s && t.moving == nil {
			missing = append(missing, t)
		}
	}
	return slices.Clip(missing), nil
}

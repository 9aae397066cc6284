package kvqueue

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
)

// kind is what tickets that share a session have in common. Tickets with a minimum hold
// have sessions of their own, which Close leaves alone.
type kind struct {
	length  time.Duration
	minHold bool
}

// session is a session of the store with the tickets of this driver on it. Engine.mu
// guards what is not constant.
type session struct {
	id string
	kind

	ttl     time.Duration // as granted
	sent    time.Time     // when the last request that started the TTL anew was sent
	tickets int
	mayHave bool      // one of them may be here, or not: see Shorten
	needed  int       // calls of Acquire for its tickets: the engine keeps it alive for them
	idle    time.Time // since when it has no tickets
	retired bool      // it takes no more tickets
	over    bool      // it has ended, or is being ended
	busy    bool      // the engine's keep-alive is under way
	failing bool      // the last keep-alive was not answered
	retryAt time.Time // when the engine may try again after a failure

	reported uint64             // when the watch for losses last reported (Engine.tick); zero while it does not run
	unwatch  context.CancelFunc // ends that watch
}

// attempt is the request of a caller for a session of a kind, whose answer others wait for.
type attempt struct {
	begun time.Time
	over  chan struct{} // closed at its end
}

const (
	freshPart = 6 // a ticket needs a session that was kept alive within this part of its TTL
	keepPart  = 3 // and the engine keeps the sessions of waiters alive this often
	idleFor   = 10 * time.Second

	// A suspension that is shorter than this part of a session's TTL, and than a second, is in the safety margin of the
	// leases on it, and may be a small step of the wall clock.
	suspendedPart = 100
	suspendedMost = time.Second
)

// attach counts a ticket on a session that was kept alive after since, and before no long
// suspension of the machine. It opens a session, or keeps one alive, if need be, until there is one.
func (e *Engine) attach(ctx context.Context, k kind, since time.Time) (*session, error) {
	for {
		e.mu.Lock()
		if s := e.current[k]; s != nil && !s.sent.Before(since) && life.SuspendedSince(s.sent) <= min(s.ttl/suspendedPart, suspendedMost) {
			s.tickets++
			e.mu.Unlock()
			return s, nil
		}
		if err := e.refresh(ctx, k); err != nil {
			return nil, err
		}
	}
}

// refresh keeps the current session of a kind alive or makes another one. One caller does so for all. If its request is
// not answered for long, perhaps because the connection is dead, another caller sends one. With mu held, which it unlocks.
func (e *Engine) refresh(ctx context.Context, k kind) error {
	if other := e.asking[k]; other != nil {
		if patience := time.Until(other.begun.Add(tryBound)); patience > 0 {
			e.mu.Unlock()
			select {
			case <-other.over:
			case <-time.After(patience):
			case <-ctx.Done():
				return ctx.Err()
			}
			return nil
		}
	}
	own := &attempt{begun: time.Now(), over: make(chan struct{})}
	e.asking[k] = own
	s := e.current[k]
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.asking[k] == own {
			delete(e.asking, k)
		}
		close(own.over)
	}()
	if s == nil {
		return e.open(ctx, k)
	}
	err := e.keepAlive(ctx, s)
	if errors.Is(err, ErrSessionOver) {
		return nil // the next has to be opened
	}
	return err
}

// open makes a session. If the answer is lost, the session ends by itself.
func (e *Engine) open(ctx context.Context, k kind) error {
	sent := time.Now()
	opened, err := e.store.Open(ctx, k.length)
	if err != nil {
		return err
	}
	s := &session{id: opened.ID, kind: k, ttl: opened.TTL, sent: sent, idle: sent}
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
		defer cancel()
		_ = e.store.End(ctx, s.id) // without an answer it ends by itself
		return driver.ErrClosed
	}
	defer e.mu.Unlock()
	e.sessions[s] = struct{}{}
	e.current[k] = s
	ctx, s.unwatch = context.WithCancel(e.ctx)
	if e.notifyLoss != nil {
		e.spawn(func() { e.watchLosses(ctx, s) })
	}
	e.plan(sent.Add(idleFor))
	return nil
}

// detach counts a ticket of a session no more. With mu held.
func (e *Engine) detach(s *session) {
	s.tickets--
	if s.tickets > 0 || s.over {
		return
	}
	s.idle = time.Now()
	if s.retired {
		e.end(s)
	} else {
		e.plan(s.idle.Add(idleFor))
	}
}

// retire makes a session take no more tickets. With mu held.
func (e *Engine) retire(s *session) {
	s.retired = true
	if e.current[s.kind] == s {
		delete(e.current, s.kind)
	}
}

// end ends a session that nobody needs, in the background. With mu held.
func (e *Engine) end(s *session) {
	s.over = true
	s.unwatch()
	e.retire(s)
	e.spawn(func() {
		ctx, cancel := context.WithTimeout(e.ctx, endBound)
		defer cancel()
		_ = e.store.End(ctx, s.id) // without an answer it ends by itself
		if e.ctx.Err() != nil {
			return // Close ends it
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.sessions, s)
	})
}

// sessionOver loses all tickets of a session that has ended. With mu held; losses are
// reported by unlock.
func (e *Engine) sessionOver(s *session) {
	s.over = true
	s.unwatch()
	e.retire(s)
	delete(e.sessions, s)
	for _, t := range e.tickets {
		if t.session == s && t.state != putting { // a put is ended by its own answer
			e.lose(t, errSessionLost)
			t.queue.reread()
		}
	}
}

// keepAlive starts a session's TTL anew. If it returns ErrSessionOver, the tickets of the
// session are lost already.
func (e *Engine) keepAlive(ctx context.Context, s *session) error {
	sent := time.Now()
	err := e.store.KeepAlive(ctx, s.id)
	e.mu.Lock()
	defer e.unlock()
	switch {
	case err == nil:
		if life.Elapsed(s.sent, time.Now()) > s.ttl {
			e.retire(s) // the store may be about to end it, although it has answered
		}
		if sent.After(s.sent) {
			s.sent = sent
		}
		if s.failing { // watches may hang on dead connections
			e.recheck()
		}
		e.answered(nil)
		s.failing = false
	case errors.Is(err, ErrSessionOver):
		e.sessionOver(s)
	default:
		e.answered(err)
		s.failing = !sent.Before(s.sent) // else a later one was answered
	}
	return err
}

// ensure keeps the session of a held ticket alive unless a keep-alive was sent after
// since. It tries until ctx ends. If that is during the first try, it is not the store that has
// not answered: it has just granted the lock.
func (e *Engine) ensure(ctx context.Context, t *ticket, since time.Time) error {
	var last error
	for pause := newBackoff(); ; {
		s, err := e.stale(ctx, t, since)
		if s == nil {
			return err // the usual case
		}
		try, end := context.WithTimeout(ctx, tryBound)
		tried := e.keepAlive(try, s)
		end()
		if tried == nil || errors.Is(tried, ErrSessionOver) {
			continue
		}
		if ctx.Err() == nil {
			last = tried
		}
		if !e.pause(ctx, pause.Next()) {
			return e.failed(ctx, last)
		}
	}
}

// stale returns the session of a held ticket if no keep-alive of it was sent after
// since.
func (e *Engine) stale(ctx context.Context, t *ticket, since time.Time) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case t.state != held:
		return nil, e.notHeld(ctx, t)
	case t.session.sent.Before(since):
		return t.session, nil
	}
	return nil, nil
}

// notHeld says why a ticket does not hold. It is lost only if the store has said so, not because its release was asked for or the
// driver closed. With mu held.
func (e *Engine) notHeld(ctx context.Context, t *ticket) error {
	switch {
	case ctx.Err() != nil:
		return e.failed(ctx, e.refused)
	case t.state == leaving:
		return errLeaving
	default:
		return cmp.Or(t.lost, errDeleted)
	}
}

// plan has the background task check the sessions at a time, or earlier. With mu
// held.
func (e *Engine) plan(at time.Time) {
	switch {
	case e.closed || !e.keepAt.IsZero() && !at.Before(e.keepAt):
		return
	case e.timer == nil:
		e.timer = time.AfterFunc(time.Until(at), e.keep)
	default:
		e.timer.Reset(time.Until(at))
	}
	e.keepAt = at
}

// keep is the background task: it starts what is due for each session.
func (e *Engine) keep() {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keepAt = time.Time{}
	for s := range e.sessions {
		e.keepSession(s, now)
	}
}

// keepSession does what is due for one session. It does not block, so that a keep-alive
// that hangs does not delay other sessions. With mu held.
func (e *Engine) keepSession(s *session, now time.Time) {
	var due time.Time
	switch {
	case s.over || s.busy:
		return
	case s.tickets == 0:
		if due = s.idle.Add(idleFor); !due.After(now) {
			e.end(s)
			return
		}
	case s.needed == 0:
		return
	default:
		if due = s.sent.Add(s.ttl / keepPart); s.retryAt.After(due) {
			due = s.retryAt
		}
		if !due.After(now) {
			s.busy = e.spawn(func() { e.keepWaiting(s) })
			return
		}
	}
	e.plan(due)
}

// keepWaiting keeps the session of waiters alive once.
func (e *Engine) keepWaiting(s *session) {
	ctx, cancel := context.WithTimeout(e.ctx, min(max(s.ttl/keepPart, time.Second), requestBound))
	defer cancel()
	err := e.keepAlive(ctx, s)
	e.mu.Lock()
	defer e.mu.Unlock()
	s.busy = false
	if err != nil {
		s.retryAt = time.Now().Add(min(max(s.ttl/30, retryFirst), retryMost))
	}
	e.keepSession(s, time.Now())
}

package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// The listener is the background task that receives notices of grants and losses. It runs while something is held or
// waited for.
const (
	listenFor   = 30 * time.Second // after the last use
	silentPause = time.Minute      // before it tries again after ErrNoNotices

	longestOpening = 100 * time.Millisecond // how long a grant waits for the listener
)

// ErrNoNotices says that no notices can arrive for now, because of a pooler in between, for example. It is the result of
// Listen, which is not called again for a minute. Other errors are tried again sooner.
var ErrNoNotices = errors.New("no notices can arrive")

// errRemoved is the cause of a loss if somebody has broken the ticket.
var errRemoved = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// Receiving reports whether notices arrive.
func Receiving(e *Engine) bool {
	e.book.mu.Lock()
	defer e.book.mu.Unlock()
	return e.book.receiving
}

// listenSoon starts the listener, unless it runs.
func (e *Engine) listenSoon() {
	if e.opts.Notifier == nil {
		return
	}
	b := &e.book
	b.mu.Lock()
	if !b.listening && b.opening == nil {
		b.opening = make(chan struct{})
	}
	b.mu.Unlock()
	e.start(&b.listening, e.listen)
}

// listenFirst starts the listener and, if that takes no longer than a request, waits until it receives notices or has
// failed: a notice of a break that is sent before is lost, and the holder learns of it at its next renewal.
func (e *Engine) listenFirst(ctx context.Context) {
	e.listenSoon()
	e.book.mu.Lock()
	opening := e.book.opening
	e.book.mu.Unlock()
	if opening == nil || !e.opts.ListenFirst {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, longestOpening)
	defer cancel()
	select {
	case <-opening:
	case <-ctx.Done():
	case <-e.life.Done(): // no listener starts any more
	}
}

func (e *Engine) listen() {
	backoff := retry.Backoff{First: 20 * time.Millisecond, Most: time.Second}
	for {
		began := time.Now()
		idle, err := e.listenOnce()
		if idle { // another listener may run by now
			return
		}
		e.book.setReceiving(false)
		if time.Since(began) > time.Second {
			backoff.Reset()
		}
		pause := backoff.Next()
		if errors.Is(err, ErrNoNotices) {
			pause = silentPause
		}
		if !retry.Sleep(e.life, pause, nil) || e.book.stopListening(e.opts.ListenFor) {
			return
		}
	}
}

// listenOnce listens until that fails, a notice was missed, or nothing was held or waited for in a while.
func (e *Engine) listenOnce() (idle bool, err error) {
	ctx, cancel := context.WithCancel(e.life)
	defer cancel()
	select {
	case <-e.book.reconnect: // was for an older connection
	default:
	}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		defer cancel()
		every := time.NewTicker(e.opts.ListenFor)
		defer every.Stop()
		for !idle {
			select {
			case <-e.book.reconnect:
				return
			case <-ctx.Done():
				return
			case <-every.C:
				idle = e.book.stopListening(e.opts.ListenFor)
			}
		}
	}()
	err = e.opts.Notifier.Listen(ctx, e.book.current(), &Inbox{e})
	cancel()
	<-watched
	return idle, err
}

// setReceiving records whether notices arrive.
func (b *book) setReceiving(receiving bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.receiving = receiving
	if b.opening != nil {
		close(b.opening)
		b.opening = nil
	}
	signal(b.changed)
}

// stopListening ends the listener if nothing was held or waited for in a while.
func (b *book) stopListening(idle time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byID) > 0 || len(b.held) > 0 && !b.listenToWait || time.Since(b.used) < idle {
		return false
	}
	b.listening, b.receiving = false, false
	return true
}

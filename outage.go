package locker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// While calls are queued nothing is due from the store, so its silence looks like a long
// queue. So the Client asks it for a sign of life meanwhile, unless the driver says itself
// what is silent (driver.Bounds.Silence): every pingInterval, once for all other waiters.
// The store counts as away when it has not answered within pingBound, or the answer is
// ErrUnavailable, until it answers again. A store that has answered an acquisition or a
// renewal of this Client since the ping was sent is busy, not away. The driver speaks only for
// the wait itself: a call that asks again (call.setDue) gives the store pingBound, too.
const (
	pingInterval = time.Second
	pingBound    = time.Second
)

// pingName is a name that nobody locks: to inspect it is one small read on every store.
const pingName = "locker/ping"

// waits are the calls of a Client that are queued.
type waits struct {
	mu      sync.Mutex
	answers atomic.Uint64 // to acquisitions and renewals, since New
	calls   int
	running bool  // the goroutine that asks the store runs
	away    error // why the store counts as away; nil: it has answered
}

// beginWait counts a call that is queued, and watched.
func (c *core) beginWait() {
	w := &c.waits
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	if !w.running {
		w.running = c.tasks.run(func() { repeat(c.tasks.live, pingInterval, nil, c.watchStore) })
	}
}

// answered counts an answer to an acquisition or a renewal.
func (c *core) answered() { c.waits.answers.Add(1) }

// answersAgain counts the answer that a ticket is queued: the store is not away.
func (c *core) answersAgain() {
	c.answered()
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	c.waits.away = nil
}

// endWait ends what beginWait began. The goroutine stays until the next ping is due, so
// that a Client that waits often does not start it each time.
func (c *core) endWait() {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	c.waits.calls--
}

// away returns why the store counts as away; nil: it does not.
func (c *core) away() error {
	c.waits.mu.Lock()
	defer c.waits.mu.Unlock()
	return c.waits.away
}

// watchStore asks the store for a sign of life, and returns how long to sleep; false:
// nobody waits.
func (c *core) watchStore() (pause time.Duration, more bool) {
	w := &c.waits
	w.mu.Lock()
	if w.calls == 0 {
		w.running, w.away = false, nil
		w.mu.Unlock()
		return 0, false
	}
	w.mu.Unlock()
	asked, answers := time.Now(), w.answers.Load()
	away := c.askStore()
	w.mu.Lock()
	if w.answers.Load() != answers {
		away = nil
	}
	w.away = away
	w.mu.Unlock()
	return max(0, pingInterval-time.Since(asked)), true
}

// askStore returns why the store counts as away. A store that refuses this caller has
// answered.
func (c *core) askStore() error {
	bound := min(pingBound, c.answerTimeout)
	ctx, cancel := context.WithTimeoutCause(c.tasks.live, bound, noAnswer(bound))
	defer cancel()
	_, err := c.d.Inspect(ctx, pingName)
	if err = unanswered(c.silent(ctx, err)); errors.Is(err, ErrUnavailable) {
		return err
	}
	return nil
}

// silent marks the error of a request in the background that has just returned as
// ErrUnavailable if the store has not answered within the bound of ctx.
func (c *core) silent(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || c.tasks.live.Err() != nil || errors.Is(err, driver.ErrLost) {
		return err
	}
	return because(err, ErrUnavailable, context.Cause(ctx))
}

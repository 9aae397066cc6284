// Package retry has the pauses between two tries of a request.
package retry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pause between two tries, which doubles each time. It is for one
// goroutine at a time.
type Backoff struct {
	First time.Duration // the first pause
	Most  time.Duration // the longest pause

	last time.Duration
}

// Usual is the pause between two tries of one request.
func Usual() Backoff { return Backoff{First: 20 * time.Millisecond, Most: 250 * time.Millisecond} }

// Next returns the next pause, less up to a quarter, so that clients that failed
// together do not come back together.
func (b *Backoff) Next() time.Duration {
	b.last = min(max(2*b.last, b.First), b.Most)
	return b.last - rand.N(b.last/4+1) //nolint:gosec // not a secret
}

// Reset makes the next pause the first again.
func (b *Backoff) Reset() { b.last = 0 }

// LateChecks says when to look again for a ticket that is not there and whose request was given
// up: that may still be on its way to the store. Each time it is this much later: soon,
// since a release often overtakes a request by milliseconds, and then for as long as a
// network may keep one.
var LateChecks = [...]time.Duration{200 * time.Millisecond, 3 * time.Second, 7 * time.Second, 20 * time.Second}

// Sleep waits for d. It reports false when ctx ends or stop is closed before. A nil
// stop is never closed.
func Sleep(ctx context.Context, d time.Duration, stop <-chan struct{}) bool {
	timer := time.NewTimer(max(d, 1)) // one that is over when it is set can crash the race detector in a bubble of testing/synctest
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-stop:
	}
	return false
}

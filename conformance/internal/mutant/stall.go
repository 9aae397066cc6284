package mutant

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// stalls is the moment at which a store that keeps every rule does not answer, as on
// a machine that is busy with others. Store.mu guards it.
type stalls struct {
	requests int           // how many there were
	at       int           // the request that begins the moment; 0: none
	length   time.Duration // of the moment
	until    time.Time     // its end, once it has begun
}

// Stall makes the n-th request, counted from 1, and all others that come in the time d
// after it, wait until that time has passed.
func (s *Store) Stall(n int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalls.at, s.stalls.length = n, d
}

// Requests returns how many requests were sent.
func (s *Store) Requests() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stalls.requests
}

// stall counts a request, and lets it wait until the moment is over.
func (d *Driver) stall(ctx context.Context) error {
	s := d.s
	s.mu.Lock()
	s.stalls.requests++
	if s.stalls.requests == s.stalls.at {
		s.stalls.until = time.Now().Add(s.stalls.length)
	}
	rest := time.Until(s.stalls.until)
	s.mu.Unlock()
	switch {
	case rest <= 0 || retry.Sleep(ctx, rest, d.closing):
		return nil
	case ctx.Err() != nil:
		return errors.Join(context.Cause(ctx), errNoAnswer)
	}
	return driver.ErrClosed
}

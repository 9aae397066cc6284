package coord

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker"
)

// Latch is a count-down latch: it opens when n parties have counted down. All
// methods may be called from many goroutines at once.
//
// A count-down is a ticket that the store keeps for a fixed time, whether or not
// the process that made it lives: a party may exit as soon as it has counted
// down. A party that dies before that has not counted, and the latch stays
// closed until another process counts down for it. A party has a name, and
// counts once however often it counts down, so a job that is started again
// after a crash simply does so again.
//
// A latch is for one occasion, which its name says, as "import of 2026-11-22". It
// needs all count-downs at the same time: a count-down that is no longer kept does
// not count any more, and the latch is closed again. So keep count-downs well longer
// than the whole occasion takes.
type Latch struct {
	l    locker.Locker
	name string
	n    int
	keep time.Duration
}

// NewLatch makes a latch for n parties, whose count-downs are kept for the given
// time. All users of a name give the same numbers. NewLatch does not ask the store.
func NewLatch(l locker.Locker, name string, n int, keep time.Duration) (*Latch, error) {
	if err := check("latch", l, name, n); err != nil {
		return nil, err
	}
	if keep < time.Millisecond {
		return nil, invalid("latch", name, "count-downs are kept for %v: want %v or more", keep, time.Millisecond)
	}
	return &Latch{l: l, name: name, n: n, keep: keep}, nil
}

// CountDown counts for a party. After an error it may have counted for a moment:
// count down again. ErrUnsupported means that the store cannot keep a ticket for so
// long.
func (l *Latch) CountDown(ctx context.Context, party string) error {
	k, err := locker.NewRWMutex(l.l, l.name).RLock(ctx, locker.WithoutDefaults(), locker.WithOwner(party),
		locker.WithMinHold(l.keep), locker.WithTTL(l.keep), locker.WithoutReentry())
	if err != nil {
		return fmt.Errorf("latch %q: %w", l.name, err)
	}
	_ = k.Release(ctx) // the ticket stays
	return nil
}

// Missing returns how many parties have yet to count down. At zero the latch is open.
func (l *Latch) Missing(ctx context.Context) (int, error) {
	q, err := l.l.Inspect(ctx, l.name)
	if err != nil {
		return 0, fmt.Errorf("latch %q: %w", l.name, err)
	}
	parties := make(map[string]bool)
	for _, t := range q.Tickets {
		if t.Shared && t.Held {
			parties[t.Owner] = true
		}
	}
	return max(0, l.n-len(parties)), nil
}

// Wait returns nil when the latch is open.
func (l *Latch) Wait(ctx context.Context) error {
	err := await(ctx, l.l, l.name+pollSuffix, l.keep, func(ctx context.Context) (bool, error) {
		missing, err := l.Missing(ctx)
		return err == nil && missing == 0, err
	})
	if err != nil {
		return fmt.Errorf("latch %q: wait: %w", l.name, err)
	}
	return nil
}

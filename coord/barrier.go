package coord

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// Barrier is a cyclic barrier: parties wait until n of them do, then those pass
// and the next ones wait. All methods may be called from many goroutines at once.
//
// A party that waits is a ticket. Wait returns nil only if n parties, the caller
// among them, waited at the same moment. If it returns nil for one of these, it
// returns nil for all of them that live and still wait: a process that dies while it
// lets them pass does not keep the others back. Parties pass in the order in which
// they came.
//
// A party may count although it does not pass, and the others then pass without it:
//
//   - one that dies, for the rest of its lease;
//   - one that gives up, until its ticket is released;
//   - one that comes in an outage, perhaps before it has the store's answer.
//
// Parties pass by their tokens, whose order has to be that of the queue. So on
// compose.All the first store has to be the authority: otherwise a party may wait
// on when the others have passed with it.
type Barrier struct {
	l    locker.Locker
	name string
	n    int
	ttl  time.Duration
}

// NewBarrier makes a barrier for n parties. ttl is the length of their leases: a
// party that has died does not count after it. All users of a name give the same
// numbers. NewBarrier does not ask the store.
func NewBarrier(l locker.Locker, name string, n int, ttl time.Duration) (*Barrier, error) {
	if err := check("barrier", l, name, n); err != nil {
		return nil, err
	}
	if ttl < time.Millisecond {
		return nil, invalid("barrier", name, "TTL %v: want %v or more", ttl, time.Millisecond)
	}
	return &Barrier{l: l, name: name, n: n, ttl: ttl}, nil
}

// Wait returns nil when n parties wait. After an error the barrier may have tripped
// with this party all the same, at that moment. ErrLost means that the party was
// paused, or cut off from the store, for longer than its lease; the error of ctx,
// that it gave up; ErrUnsupported, that the store cannot keep a ticket for twice the TTL
// and ten seconds, as ZooKeeper with its usual session.
func (b *Barrier) Wait(ctx context.Context) error {
	k, err := b.arrive(ctx)
	if err != nil {
		return fmt.Errorf("barrier %q: %w", b.name, err)
	}
	err = k.Do(ctx, func(context.Context) error {
		return await(ctx, b.l, b.name+pollSuffix, b.ttl, func(ctx context.Context) (bool, error) { return b.pass(ctx, k) })
	})
	if lost := new(locker.DoError); errors.As(err, &lost) {
		err = lost.Result // it counts whether the ticket was there when pass looked
	}
	if err != nil {
		return fmt.Errorf("barrier %q: wait: %w", b.name, err)
	}
	return nil
}

// arrive takes the ticket of a party, and tries again in an outage. If an answer is lost,
// the party has another ticket until that is removed. The tickets of one party have the
// same note.
func (b *Barrier) arrive(ctx context.Context) (*locker.Lock, error) {
	parties := locker.NewRWMutex(b.l, b.name, locker.WithoutDefaults(), locker.WithNote(rand.Text()))
	for {
		k, err := parties.RLock(ctx, locker.WithTTL(b.ttl), locker.WithoutReentry())
		if err == nil || ctx.Err() != nil || !errors.Is(err, locker.ErrUnavailable) {
			return k, err
		}
		if !retry.Sleep(ctx, pauseMost, nil) {
			return nil, ctx.Err()
		}
	}
}

// pass reports whether the party may pass, and lets the next n pass if they are
// there.
//
// One ticket, the trip, decides which n parties pass: its note is the token of the
// last of them. The parties are read before the trips, so if a party has passed and
// left, its trip is read. So parties that decide at the same time, or late, find the
// same n. The lock of the party that polls only saves requests.
func (b *Barrier) pass(ctx context.Context, k *locker.Lock) (bool, error) {
	q, err := b.l.Inspect(ctx, b.name)
	if err != nil {
		return false, err
	}
	passed, err := b.passed(ctx)
	switch {
	case err != nil:
		return false, err
	case k.Err() != nil: // the ticket has ended, and may not have been counted
		return false, k.Err()
	case k.Token() <= passed:
		return true, nil
	}
	var waiting []uint64
	for i, t := range q.Tickets {
		if t.Shared && t.Held && t.Token > passed && !cameAgain(t, q.Tickets[i+1:]) {
			waiting = append(waiting, t.Token)
		}
	}
	if len(waiting) < b.n {
		return false, nil
	}
	last := waiting[b.n-1]
	if err := b.trip(ctx, last); err != nil {
		return false, err
	}
	return k.Token() <= last, nil
}

// cameAgain reports whether the party of a ticket has a later one that is held.
func cameAgain(t locker.Ticket, behind []locker.Ticket) bool {
	return t.Note != "" && slices.ContainsFunc(behind, func(o locker.Ticket) bool { return o.Held && o.Note == t.Note })
}

// passed returns the greatest token up to which parties may pass.
func (b *Barrier) passed(ctx context.Context) (uint64, error) {
	q, err := b.l.Inspect(ctx, b.name+tripSuffix)
	if err != nil {
		return 0, err
	}
	var passed uint64
	for _, t := range q.Tickets {
		last, _ := strconv.ParseUint(t.Note, 10, 64)
		passed = max(passed, last)
	}
	return passed, nil
}

// keepTrips is how much longer than two leases a trip is kept: a party that lives
// has polled by then.
const keepTrips = 10 * time.Second

// trip lets all parties up to a token pass. Others may have seen a trip whose request
// was not answered. So trip tries again until the store confirms it, for one lease at
// most, even when ctx ends.
func (b *Barrier) trip(ctx context.Context, last uint64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.ttl)
	defer cancel()
	keep := max(b.ttl, 2*b.ttl+keepTrips) // b.ttl if the sum overflows
	for {
		k, err := locker.NewRWMutex(b.l, b.name+tripSuffix).RLock(ctx, locker.WithoutDefaults(), locker.WithNote(strconv.FormatUint(last, 10)),
			locker.WithMinHold(keep), locker.WithTTL(keep), locker.WithoutReentry())
		if err == nil {
			_ = k.Release(ctx) // the ticket stays
			return nil
		}
		if !errors.Is(err, locker.ErrUnavailable) || !retry.Sleep(ctx, pauseFirst, nil) {
			return err
		}
	}
}

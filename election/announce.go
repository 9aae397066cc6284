package election

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// A leader announces its term by one more lock, the term lock, which observers find by the
// token of the term: it is held exclusively, and observers wait for it as readers, so that
// they wake up when it is released.
//
// Its lease is a third shorter than the leader's. A leader that dies has at least two thirds
// of its lease left, so observers wake up before the next leader is elected.

// termName is the name of the term lock.
func (e *Election) termName(term uint64) string {
	return e.name + "#term/" + strconv.FormatUint(term, 10)
}

// maxName is the longest name of an election: that of the term lock fits too.
const maxName = maxText - len("#term/18446744073709551615")

// announce keeps the term announced until ctx ends.
func (t *Term) announce(ctx context.Context) {
	pause := newBackoff()
	for ctx.Err() == nil {
		k, err := t.hold(ctx)
		switch {
		case errors.Is(err, locker.ErrClosed):
			return
		case err != nil:
			retry.Sleep(ctx, pause.Next(), nil)
			continue
		}
		pause.Reset()
		select {
		case <-k.Done(): // lost: it is announced again
		case <-ctx.Done():
			_ = k.Release(ctx) // at the latest its lease ends
		}
	}
}

// hold acquires the term lock.
func (t *Term) hold(ctx context.Context) (*locker.Lock, error) {
	e := t.e
	term := locker.NewMutex(e.l, e.termName(t.Token()))
	return e.leased(e.ttl-e.ttl/3, func(ttl time.Duration) (*locker.Lock, error) {
		return term.Lock(ctx, e.ticket("", ttl)...)
	})
}

// leased acquires with a lease of ttl or, if that is too short for the safety margin of the
// Locker, with one as long as the leader's.
func (e *Election) leased(ttl time.Duration, acquire func(ttl time.Duration) (*locker.Lock, error)) (*locker.Lock, error) {
	k, err := acquire(ttl)
	if errors.Is(err, locker.ErrInvalidOption) {
		k, err = acquire(e.ttl)
	}
	return k, err
}

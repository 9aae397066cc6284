package kvqueue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// watched is a store that counts the watches for losses.
type watched struct {
	*fake
	now atomic.Int64
}

func (s *watched) Losses(ctx context.Context, session string, report func()) error {
	s.now.Add(1)
	defer s.now.Add(-1)
	return s.fake.Losses(ctx, session, report)
}

// Locks that are held for a moment cost no watch, however many lengths they have: an agent of
// Consul allows a client 200 connections. One that is held for longer is watched, even if its
// session was opened for a lock that was not.
func TestShortLocksAreNotWatched(t *testing.T) {
	inBubble(t, func(b *bed) {
		store := &watched{fake: b.store}
		b.e.store = store
		for i := range 300 {
			r := request("a", fmt.Sprint(i))
			r.TTL += time.Duration(i) * time.Millisecond
			b.drop(b.e, b.get(b.e, r))
		}
		time.Sleep(5 * lossDelay)
		if n := store.now.Load(); n > 0 {
			t.Errorf("%d watches", n)
		}
		h := b.get(b.e, request("a", "held"))
		time.Sleep(2 * lossDelay)
		if n := store.now.Load(); n != 1 {
			t.Errorf("%d watches for one lock", n)
		}
		b.drop(b.e, h)
		time.Sleep(idleFor + time.Second)
		if n := store.now.Load(); n > 0 {
			t.Errorf("%d watches of sessions that have ended", n)
		}
	})
}

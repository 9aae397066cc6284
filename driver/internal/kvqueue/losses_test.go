package kvqueue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
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

// A ticket of this driver is lost, in whichever way the driver learns of it. A waiter of this driver that it has blocked, and for
// which nothing was watched, is granted then.
func TestLossWakesWaitersOfThisDriver(t *testing.T) {
	for what, lose := range map[string]func(b *bed, h driver.Hold){
		"the watch shows that its session is over": func(b *bed, _ driver.Hold) {
			time.Sleep(2 * lossDelay)
			_ = b.store.End(b.Context(), "s1")
		},
		"a renewal shows that its session is over": func(b *bed, h driver.Hold) {
			b.store.unwatched = true
			_ = b.store.End(b.Context(), "s1")
			_ = b.e.Renew(b.Context(), h, time.Minute)
		},
		"a renewal shows that it was removed by hand": func(b *bed, h driver.Hold) {
			b.store.strike("a", "0")
			_ = b.e.Renew(b.Context(), h, time.Minute)
		},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.e.opts.LocalWait = time.Hour
				h := b.get(b.e, request("a", "0"))
				r := request("a", "w")
				r.TTL *= 2 // another session
				w := b.wait(b.e, r)
				lose(b, h)
				b.granted(w, true)
				b.drop(b.e, w.r.Hold(w.grant.Token))
			})
		})
	}
}

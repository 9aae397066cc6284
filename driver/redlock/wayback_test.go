package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// A release that an outage has left unanswered is done within two seconds after
// the routes work again, and another lock of the same client is kept.
func TestWayBack(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	for fault, f := range map[string]struct{ off, on func(*testbed.ProxySet) }{
		"delivers late": {(*testbed.ProxySet).Cut, (*testbed.ProxySet).Heal},
		"resets":        {(*testbed.ProxySet).Cut, func(w *testbed.ProxySet) { w.Reset(); w.Heal() }},
		"refuses":       {(*testbed.ProxySet).Refuse, (*testbed.ProxySet).Heal},
		"loses answers": {func(w *testbed.ProxySet) { w.DropReplies(true) }, (*testbed.ProxySet).Heal},
	} {
		w := nodes.Proxies(t)
		t.Run(strings.ReplaceAll(fault, " ", "-"), func(t *testing.T) {
			t.Parallel()
			l, other := client(t, w.URL()), client(t, nodes.URL())
			k := take(t, l, fault, locker.WithTTL(15*time.Second))
			kept := take(t, l, fault+" kept", locker.WithTTL(15*time.Second))
			got := queue(t, other, fault, 2)
			f.off(w)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := k.Release(ctx); err == nil {
				t.Error("released without an answer")
			}
			time.Sleep(3 * time.Second)
			f.on(w)
			var next *locker.Lock
			took := testbed.Elapsed(func() { next = granted(t, got) })
			t.Logf("free %v after the ways were back", took)
			if took > 2*time.Second {
				t.Errorf("free %v after the ways were back", took)
			}
			release(t, next)
			if err := kept.Err(); err != nil {
				t.Errorf("the other lock: %v", err)
			}
			release(t, kept)
		})
	}
}

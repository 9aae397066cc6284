package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestWatchOfAnotherConnection: a waiter's ticket is broken while the client has no
// connection. The holder ahead releases when the client is connected again, but has not
// yet set the watch on the waiter's own node. The waiter is not granted.
func TestWatchOfAnotherConnection(t *testing.T) {
	t.Parallel()
	p := testbed.SharedZookeeper(t).Proxy(t)
	ctx, d := insideAt(t, p.Addr())
	r := driver.Request{Name: "x", TTL: time.Minute, Renewed: true, Wait: true}
	r.ID = "ahead-1"
	ahead := enqueue(ctx, t, d, r)
	r.ID = "waits-1"
	own := enqueue(ctx, t, d, r)
	w := newWaiter(d, d.ticketOf(r.Hold(0)), r)
	set, err := d.conn.Watch(ctx, d.base)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	w.t.watch = set // so that the client sets none on the ticket's own node, as if it did that in a later request
	d.mu.Unlock()
	_, wake, err := w.read(ctx)
	if err != nil || wake == nil {
		t.Fatalf("behind another: wake %v, error %v", wake, err)
	}
	if w.predecessor != ahead || !w.watched() {
		t.Fatalf("it waits for %q, watched %v", w.predecessor, w.watched())
	}
	p.Reset()
	for w.watched() {
		if !retry.Sleep(ctx, time.Millisecond, nil) {
			t.Fatal("the client has not noticed")
		}
	}
	other, _ := dial(t, testbed.SharedZookeeper(t).Addr())
	for _, path := range []string{own, ahead} {
		if err := other.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
	<-wake // the client is connected, and has set the watch on the node ahead again
	w.predecessorReleased = true
	if g, _, err := w.step(ctx); !errors.Is(err, driver.ErrLost) {
		t.Fatalf("a ticket that is gone: grant %v, error %v", g, err)
	}
}

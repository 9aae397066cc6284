package zookeeper_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// TestSlowObserverOfAnother: two wait for two permits, and the first one's Joined, which
// runs observers of its program, takes long. When both permits are returned, the second
// is granted at once, and the first when Joined has returned.
func TestSlowObserverOfAnother(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	holder, first, second := open(t, url), open(t, url), open(t, url)
	held := holdPermits(ctx, t, holder)
	acquire := func(d driver.Driver, r driver.Request) <-chan error {
		ended := make(chan error, 1)
		go func() {
			_, err := d.Acquire(ctx, r)
			ended <- err
		}()
		return ended
	}
	r1, joined1 := permit("first-1", 2)
	seen := make(chan struct{})
	r1.Joined = func() {
		close(joined1)
		<-seen
	}
	granted1 := acquire(first, r1)
	<-joined1
	r2, joined2 := permit("second-1", 2)
	granted2 := acquire(second, r2)
	<-joined2
	watchedBy(t, ticketNode(t, admin(t), url, 2), 2) // its own session, and the second waiter's
	for _, h := range held {
		if err := holder.Release(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-granted2:
		if err != nil {
			t.Error(err)
		}
	case err := <-granted1:
		t.Errorf("Acquire has returned before Joined: %v", err)
	case <-time.After(15 * time.Second):
		t.Error("one of two permits is free, and its waiter is not granted while an observer of another runs")
	}
	close(seen)
	if err := <-granted1; err != nil {
		t.Error(err)
	}
}

package zookeeper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// permit returns a request for one of limit permits; joined is closed when it waits.
func permit(id string, limit int) (r driver.Request, joined chan struct{}) {
	joined = make(chan struct{})
	r = request("x", id)
	r.Shared, r.Limit = true, limit
	r.Joined = func() { close(joined) }
	return r, joined
}

// TestAskedAgainPassesOn: two wait for permits, the second for the grant of the first.
// The first request is repeated and granted at its first reading: the second is woken.
func TestAskedAgainPassesOn(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	holder, first, second := open(t, url), open(t, url), open(t, url)
	var held []driver.Hold
	for _, id := range []string{"held-1", "held-2"} {
		r, _ := permit(id, 2)
		g := must[driver.Grant](t)(holder.Acquire(ctx, r))
		held = append(held, r.Hold(g.Token))
	}
	r1, joined1 := permit("first", 2)
	short, cancel := context.WithCancel(ctx)
	given := make(chan error, 1)
	go func() {
		_, err := first.Acquire(short, r1)
		given <- err
	}()
	<-joined1
	r2, joined2 := permit("second", 2)
	granted := make(chan error, 1)
	go func() {
		_, err := second.Acquire(ctx, r2)
		granted <- err
	}()
	<-joined2
	watchedBy(t, ticketNode(t, admin(t), url, 2), 2) // its own session, and the second waiter's
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	for _, h := range held {
		if err := holder.Release(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	r1.Joined = nil
	if _, err := first.Acquire(ctx, r1); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-granted:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the second of two permits was not granted while only one was held")
	}
	for _, h := range []driver.Hold{r1.Hold(0), r2.Hold(0)} {
		if err := second.Release(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
}

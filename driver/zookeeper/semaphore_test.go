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

// holdPermits takes both of two permits.
func holdPermits(ctx context.Context, t *testing.T, d driver.Driver) (held []driver.Hold) {
	t.Helper()
	for _, id := range []string{"held-1", "held-2"} {
		r, _ := permit(id, 2)
		g := must[driver.Grant](t)(d.Acquire(ctx, r))
		held = append(held, r.Hold(g.Token))
	}
	return held
}

// TestAskedAgainPassesOn: two wait for permits, the second for the grant of the first.
// The first request is repeated and granted at its first reading: the second is woken.
func TestAskedAgainPassesOn(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	holder, first, second := open(t, url), open(t, url), open(t, url)
	held := holdPermits(ctx, t, holder)
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

// TestWaitingPermitWritten: somebody writes into the node of a permit that waits, as if it
// were granted. The permit behind it reads the queue once more, and then waits.
func TestWaitingPermitWritten(t *testing.T) {
	t.Parallel()
	srv := quietServer(t)
	at := srv.URL() + "/t-w?session=10m"
	ctx := ctxFor(t, 30*time.Second)
	held, _ := permit("held-1", 1)
	holder := open(t, at)
	g := must[driver.Grant](t)(holder.Acquire(ctx, held))
	granted := make(chan driver.Hold, 2)
	for _, id := range []string{"first-1", "second-1"} {
		d := open(t, at)
		r, joined := permit(id, 1)
		go func() {
			g, err := d.Acquire(ctx, r)
			if err != nil {
				t.Error(err)
			}
			if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
				t.Error(err)
			}
			granted <- r.Hold(g.Token)
		}()
		<-joined
	}
	conn := connect(t, srv.Addr())
	settle(t, srv)
	got := counted(t, srv, func() {
		if _, err := conn.Set(ticketNode(t, conn, at, 1), []byte("{}"), -1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	})
	if n := got["packets_received"]; n > 20 {
		t.Errorf("%d requests in half a second after the node was written", n)
	}
	if err := holder.Release(ctx, held.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		<-granted
	}
}

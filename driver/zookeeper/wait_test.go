package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper/internal/zkconn"
	"github.com/lockerproject/locker/internal/testbed"
)

// inside makes a driver for tests of its internals.
func inside(t *testing.T) (context.Context, *Driver) {
	t.Helper()
	return insideAt(t, testbed.SharedZookeeper(t).Addr())
}

func insideAt(t *testing.T, addr string) (context.Context, *Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	conn, events := dial(t, addr)
	d, err := New(conn, events, WithPrefix("t/"+rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return ctx, d
}

func dial(t *testing.T, addr string) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogInfo(false), zk.WithLogger(noLog{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn, events
}

// enqueue queues a ticket for x, and returns the path of its node.
func enqueue(ctx context.Context, t *testing.T, d *Driver, r driver.Request) string {
	t.Helper()
	e := &enqueueing{d: d, r: r, parent: d.parent(r.Name), bound: time.Now().Add(enqueueBound)}
	if err := e.enqueue(ctx); err != nil {
		t.Fatal(err)
	}
	return e.t.path
}

type noLog struct{}

func (noLog) Printf(string, ...any) {}

// TestWatchOfAnother: after a waiter has read the queue, another one sets the watch that
// they share. The first waiter must read the queue again, since the watch does not report
// what happened between.
func TestWatchOfAnother(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	r := driver.Request{Name: "x", Shared: true, Limit: 2, TTL: time.Minute, Renewed: true, Wait: true}
	var paths []string
	for _, id := range []string{"a-1", "a-2", "a-3"} {
		r.ID = id
		paths = append(paths, enqueue(ctx, t, d, r))
	}
	parent := parentOf(paths[0])
	read := func() *view {
		v, err := d.list(ctx, parent)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	watch := func(v *view) zkconn.Watch {
		set, err := d.conn.WatchChildren(ctx, parent, v.children)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	before := read()
	if _, err := d.deleteTicket(ctx, paths[0], false); err != nil {
		t.Fatal(err)
	}
	if watch(read()).HasFired() {
		t.Error("the watch of a waiter that has read the queue as it is has fired")
	}
	if !watch(before).HasFired() {
		t.Error("a waiter that has read the queue as it was before waits for the next change")
	}
	if watch(read()).HasFired() {
		t.Error("the watch has fired without a change")
	}
}

// TestMarkedMeanwhile: after a waiter has read the queue, the ticket that it waits for is
// granted, and its node marked. The waiter must read the queue again.
func TestMarkedMeanwhile(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	r := driver.Request{Name: "x", Shared: true, Limit: 2, TTL: time.Minute, Renewed: true, Wait: true}
	var paths []string
	for _, id := range []string{"held-1", "held-2", "first-1", "second-1"} {
		r.ID = id
		paths = append(paths, enqueue(ctx, t, d, r))
	}
	w := newWaiter(d, d.ticketOf(r.Hold(0)), r)
	v, err := d.list(ctx, w.parent)
	if err != nil {
		t.Fatal(err)
	}
	set, err := w.watch(ctx, v, 3)
	if err != nil || set.HasFired() || w.ahead != paths[2] {
		t.Fatalf("it watches %s, error %v, want %s", w.ahead, err, paths[2])
	}
	if _, err := d.conn.Multi(ctx, &zk.SetDataRequest{Path: paths[2], Data: []byte("{}"), Version: -1}); err != nil {
		t.Fatal(err)
	}
	<-set.C
	if set, err = w.watch(ctx, v, 3); err != nil || !set.HasFired() {
		t.Errorf("it waits for a mark that was set before, error %v", err)
	}
}

// TestNoReleaseOfAHolder: what is ahead of a waiter changes in another way than by the release of one who held the lock alone: a
// permit is marked, or permits follow the holder that is released. The waiter does not take itself for the next one.
func TestNoReleaseOfAHolder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ahead   []driver.Request
		r       driver.Request
		changes func(ctx context.Context, d *Driver, ahead []string) error
	}{
		"a permit is marked": {
			ahead: []driver.Request{{Shared: true, Limit: 1}},
			changes: func(ctx context.Context, d *Driver, ahead []string) error {
				_, err := d.conn.Multi(ctx, &zk.SetDataRequest{Path: ahead[0], Data: []byte("{}"), Version: -1})
				return err
			},
		},
		"permits follow": {
			ahead: []driver.Request{{}, {Shared: true, Limit: 1}},
			r:     driver.Request{Shared: true, Limit: 1},
			changes: func(ctx context.Context, d *Driver, ahead []string) error {
				_, err := d.deleteTicket(ctx, ahead[0], true)
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, d := inside(t)
			var ahead []string
			for i, r := range c.ahead {
				r.Name, r.ID, r.TTL, r.Renewed, r.Wait = "x", fmt.Sprint("ahead-", i), time.Minute, true, true
				ahead = append(ahead, enqueue(ctx, t, d, r))
			}
			r := c.r
			r.Name, r.ID, r.TTL, r.Renewed, r.Wait = "x", "waits-1", time.Minute, true, true
			enqueue(ctx, t, d, r)
			w := newWaiter(d, d.ticketOf(r.Hold(0)), r)
			w.reconnected = d.conn.Reconnected()
			_, wake, err := w.step(ctx)
			if err != nil || wake == nil {
				t.Fatalf("behind others: wake %v, error %v", wake, err)
			}
			if err := c.changes(ctx, d, ahead); err != nil {
				t.Fatal(err)
			}
			if err := w.sleep(ctx, wake); err != nil {
				t.Fatal(err)
			}
			if g, wake, err := w.step(ctx); err != nil || wake == nil {
				t.Errorf("granted beside another: %v, error %v", g, err)
			}
		})
	}
}

// TestMinHoldOfAWaiter: the minimum hold of a ticket that has waited begins with its grant, so the session is confirmed anew (D20).
func TestMinHoldOfAWaiter(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	d, err := Open(ctx, testbed.SharedZookeeper(t).URL()+"?session=10s&prefix=t/"+rand.Text())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	warm(ctx, t, d)
	most := d.Bounds(0).MaxTTL
	r := driver.Request{Name: "x", ID: "waits-1", TTL: most, MinHold: most, Renewed: true, Wait: true}
	enqueue(ctx, t, d, r)
	granted := time.Now()
	g, err := newWaiter(d, d.ticketOf(r.Hold(0)), r).granted(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if early := granted.Sub(g.Asked); early > 0 {
		t.Errorf("the lease of %v began %v before the grant", most, early)
	}
}

// TestGoneBeforeTheWatch: the node of a waiter is deleted by hand after it has read the queue. It finds that out when it watches the node,
// and the driver forgets the ticket.
func TestGoneBeforeTheWatch(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	r := driver.Request{Name: "x", TTL: time.Minute, Renewed: true, Wait: true}
	r.ID = "ahead-1"
	enqueue(ctx, t, d, r)
	r.ID = "waits-1"
	own := enqueue(ctx, t, d, r)
	v, err := d.list(ctx, d.parent(r.Name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.conn.Multi(ctx, &zk.DeleteRequest{Path: own, Version: -1}); err != nil {
		t.Fatal(err)
	}
	w := newWaiter(d, d.ticketOf(r.Hold(0)), r)
	if _, err := w.watch(ctx, v, 1); !errors.Is(err, driver.ErrLost) || d.mayHave(r.ID) {
		t.Errorf("error %v, want ErrLost; the driver has the ticket: %v", err, d.mayHave(r.ID))
	}
}

// TestReleaseOfAnUnansweredCreate: a create was given up, and may not have been sent yet, since
// its goroutine has to run first. A release is answered when the create has ended, not before.
func TestReleaseOfAnUnansweredCreate(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	warm(ctx, t, d) // else the release waits for the connection
	ended := make(chan struct{})
	d.mu.Lock()
	d.creates["given-up-1"] = ended
	d.mu.Unlock()
	h := driver.Hold{Name: "x", ID: "given-up-1"}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := d.Release(short, h); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrLost) {
		t.Errorf("release: %v, want the end of its context", err)
	}
	close(ended)
	if err := d.Release(ctx, h); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	if d.mayHave(h.ID) {
		t.Error("the ticket is not known to be gone")
	}
}

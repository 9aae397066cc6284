package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestNoGrantAfterClose: Close decides whether the session has to live on for a minimum
// hold. A grant that comes later would count on a session that Close ends.
func TestNoGrantAfterClose(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	r := driver.Request{Name: "x", ID: "late-1", TTL: time.Minute, Renewed: true, Wait: true}
	enqueue(ctx, t, d, r)
	ticket := d.ticketOf(r.Hold(0))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.grant(ticket, r, time.Now()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a grant after Close: error %v, want ErrClosed", err)
	}
}

// TestWrittenBeforeTheWatchIsKnown: a node is written just after the server has set its
// watch. The event comes before the driver has noted the watch, which has fired. The node
// is watched again.
func TestWrittenBeforeTheWatchIsKnown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	written := make(chan struct{})
	conn, events := dial(t, testbed.SharedZookeeper(t).Addr())
	d, err := New(conn, events, WithPrefix("t/"+rand.Text()), WithEvents(func(ev zk.Event) {
		if ev.Type == zk.EventNodeDataChanged {
			close(written)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := driver.Request{Name: "x", ID: "held-1", TTL: time.Minute, Wait: true}
	path := enqueue(ctx, t, d, r)
	held := d.ticketOf(r.Hold(0))
	set, err := d.conn.Watch(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.conn.Multi(ctx, &zk.SetDataRequest{Path: path, Data: []byte("{}"), Version: -1}); err != nil {
		t.Fatal(err)
	}
	<-written
	d.mu.Lock()
	held.watch = set
	d.mu.Unlock()
	for !watches(d, held) {
		if !retry.Sleep(ctx, 10*time.Millisecond, nil) {
			t.Fatal("nobody watches the node of a held lock")
		}
	}
}

// TestEndOfAnEarlierNode: the create of a ticket was carried out twice, in two sessions, and the node of the first one is deleted. That is
// no end of the ticket.
func TestEndOfAnEarlierNode(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	r := driver.Request{Name: "x", ID: "held-1", TTL: time.Minute, Renewed: true, Wait: true}
	path := enqueue(ctx, t, d, r)
	d.changed(zk.Event{Type: zk.EventNodeDeleted, Path: path + "0"})
	if d.ticketOf(r.Hold(0)) == nil {
		t.Error("the driver has forgotten the ticket")
	}
	d.changed(zk.Event{Type: zk.EventNodeDeleted, Path: path})
	if d.ticketOf(r.Hold(0)) != nil {
		t.Error("the driver has a ticket whose node was deleted")
	}
}

func watches(d *Driver, t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return t.watch.C != nil && !t.watch.HasFired()
}

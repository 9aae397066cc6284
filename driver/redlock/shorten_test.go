package redlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// left is how long a lease lasts on a node.
func (x *trio) left(node int) time.Duration {
	return x.direct[node].PTTL(context.Background(), x.key()).Val()
}

// acquireForAMinute acquires a ticket.
func (x *trio) acquireForAMinute(id string) driver.Hold {
	x.t.Helper()
	r := driver.Request{Name: "name", ID: id, TTL: time.Minute}
	g, err := x.d.Acquire(x.t.Context(), r)
	if err != nil {
		x.t.Fatal(err)
	}
	return r.Hold(g.Token)
}

// A lease that is shortened while a renewal is under way is not lengthened when a node is back.
func TestShortenBesideRenewal(t *testing.T) {
	t.Parallel()
	x := newTrio(t, patient)
	h := x.acquireForAMinute("holder")
	for _, way := range x.ways {
		way.HoldReplies(true)
	}
	renewed, shortened := make(chan error, 1), make(chan error, 1)
	go func() { renewed <- x.d.Renew(context.Background(), h, time.Hour) }()
	x.until("renewed on all nodes", func() bool {
		return x.left(0) > time.Minute && x.left(1) > time.Minute && x.left(2) > time.Minute
	})
	go func() { shortened <- x.d.Shorten(context.Background(), h, 10*time.Second) }()
	x.until("to be shortened", func() bool { return x.d.holds(h.ID) == nil })
	for _, way := range x.ways {
		way.HoldReplies(false)
	}
	if err := <-renewed; err != nil {
		t.Error(err)
	}
	if err := <-shortened; err != nil {
		t.Error(err)
	}
	x.d.reassure()
	for node := range x.ways {
		x.answered(node)
		if left := x.left(node); left > 11*time.Second || left <= 0 {
			t.Errorf("node %d: the lease lasts for %v", node, left)
		}
	}
}

// A lease that is shortened at the moment when a node is back is not lengthened by what that node is sent.
func TestShortenBesideReassurance(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	for i := range 200 {
		h := x.acquireForAMinute(fmt.Sprint("holder-", i))
		var group sync.WaitGroup
		group.Go(x.d.reassure)
		group.Go(func() {
			if err := x.d.Shorten(t.Context(), h, 10*time.Second); err != nil {
				t.Error(err)
			}
		})
		group.Wait()
		for node := range x.ways {
			x.send(node, x.inspect())
			if left := x.left(node); left > 11*time.Second || left <= 0 {
				t.Fatalf("node %d: the lease lasts for %v", node, left)
			}
		}
		if err := x.d.Release(t.Context(), h); err != nil {
			t.Fatal(err)
		}
	}
}

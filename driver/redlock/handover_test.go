package redlock

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A release reaches the nodes one after the other. A waiter that has proposed its ticket when the first had run it does not wait for
// a silent node, which has said before that the ticket may hold there, once the last has said so.
func TestSilentNodeBesideRelease(t *testing.T) {
	t.Parallel()
	x := newTrio(t, WithNodeTimeout(time.Minute))
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	x.direct[0].Del(t.Context(), x.key()) // the ticket holds there until the waiter gives it back
	got, queued := make(chan error, 1), make(chan struct{})
	go func() {
		_, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "waiter", TTL: time.Hour, Wait: true, Joined: func() { close(queued) }})
		got <- err
	}()
	<-queued
	x.queued("waiter")
	x.until("it may hold on the first node", func() bool {
		x.d.mu.Lock()
		defer x.d.mu.Unlock()
		return x.d.waiter("waiter").may == 1
	})
	x.ways[0].Cut()
	for _, node := range []int{1, 2} {
		x.send(node, x.d.releaseCall(x.d.nodes[node], removal{h: driver.Hold{Name: "name", ID: "holder"}}))
		if node == 1 {
			x.until("it holds on the second node", func() bool { return x.holds(1) && !x.waits(1, "waiter") })
		}
	}
	select {
	case err := <-got:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the waiter waits for the silent node")
	}
	x.ways[0].Heal()
}

// Of five nodes two hold a ticket, one refuses its number, so that the others are hurried, the fourth queues it, and says later that
// it may hold, and the fifth is silent: nobody waits for it.
func TestHastenedTwice(t *testing.T) {
	d := &Driver{nodes: make([]*node, 5), quorum: 3}
	p := d.newProposal(&ticket{r: driver.Request{}}, 1, orWait)
	p.asked = time.Now()
	p.pending = 5
	// as answer does
	say := func(node int, what int64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pending--
		p.answers[node], p.errs[node] = answer{what: what}, nil
		if p.enough() {
			t.Fatal("decided")
		}
	}
	say(0, holds)
	say(1, holds)
	say(2, refused)
	say(3, queued)
	time.Sleep(50 * time.Millisecond)
	p.hasNews(3)
	select {
	case <-p.done:
	case <-time.After(time.Second):
		t.Error("it waits for the silent node")
	}
}

// A waiter that is queued does not keep its proposal, which is 5 KB.
func TestQueuedKeepsNoProposal(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Hour}); err != nil {
		t.Fatal(err)
	}
	queued, ctx := make(chan struct{}), t.Context()
	go func() {
		_, _ = x.d.Acquire(ctx, driver.Request{Name: "name", ID: "waiter", TTL: time.Hour, Wait: true, Joined: func() { close(queued) }})
	}()
	<-queued
	x.d.mu.Lock()
	defer x.d.mu.Unlock()
	if x.d.waiter("waiter").asked != nil {
		t.Error("it keeps its proposal")
	}
}

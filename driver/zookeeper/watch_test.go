package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestWatchTellsWhatWasMissed watches a queue after it has changed: the change is told.
func TestWatchTellsWhatWasMissed(t *testing.T) {
	ctx, d := inside(t)
	r := driver.Request{Name: "x", Shared: true, Limit: 2, TTL: time.Minute, Renewed: true, Wait: true}
	var paths []string
	for _, id := range []string{"a-1", "a-2", "a-3"} {
		r.ID = id
		paths = append(paths, enqueue(ctx, t, d, r))
	}
	before, err := d.store.Read(ctx, "x")
	if err != nil || len(before.Entries) != 3 || before.Complete != 3 {
		t.Fatalf("%+v, %v", before, err)
	}
	drop := func(path string) {
		if _, err := d.store.deleteTicket(path, false); err != nil {
			t.Error(err)
		}
	}
	drop(paths[0])
	watching, stop := context.WithCancel(ctx)
	defer stop()
	want := []int{2, 1}
	err = d.store.Watch(watching, kvqueue.Watching{Name: "x", Complete: before.Complete}, func(ev kvqueue.Event) {
		if len(ev.Queue.Entries) != want[0] || ev.Queue.Complete != 3 || ev.Queue.Era != before.Era {
			t.Errorf("told of %+v, want %d entries", ev.Queue, want[0])
		}
		if want = want[1:]; len(want) == 0 {
			stop()
			return
		}
		drop(paths[1])
	})
	if err != nil || len(want) > 0 {
		t.Fatalf("%v, not told of %v", err, want)
	}
}

// TestWatchHandsOver watches the one ahead: that the lock is handed over is told if that
// one was held and released, if both are exclusive, and if the one that waits is there.
func TestWatchHandsOver(t *testing.T) {
	for name, c := range map[string]struct {
		aim, first     bool // shared
		held, removed  bool
		marked         bool
		wantHandedOver bool
	}{
		"held":                     {held: true, wantHandedOver: true},
		"a permit that is granted": {aim: true, marked: true},
		"waited":                   {},
		"shared":                   {aim: true, held: true},
		"for a shared one":         {first: true, held: true},
		"the waiter's own is gone": {held: true, removed: true},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, d := inside(t)
			r := driver.Request{Name: "x", ID: "ahead-1", Shared: c.aim, TTL: time.Minute, Renewed: true, Wait: true}
			ahead := kvqueue.Entry{Key: enqueue(ctx, t, d, r), Number: 1, Shared: c.aim}
			r.ID, r.Shared = "first-1", c.first
			first := kvqueue.Entry{Key: enqueue(ctx, t, d, r), Number: 2, Shared: c.first}
			var told []kvqueue.Event
			ended := make(chan error, 1)
			go func() {
				w := kvqueue.Watching{Name: "x", Aim: ahead, First: first, Complete: 2}
				ended <- d.store.Watch(ctx, w, func(ev kvqueue.Event) { told = append(told, ev) })
			}()
			for { // until both are watched
				d.store.mu.Lock()
				_, watched := d.store.watches[ahead.Key]
				own := d.store.nodes[first.Key]
				watched = watched && own.watch.fired != nil
				d.store.mu.Unlock()
				if watched {
					break
				}
				if !retry.Sleep(ctx, time.Millisecond, nil) {
					t.Fatal("not watched")
				}
			}
			if c.marked {
				d.store.mark(ctx, kvqueue.Ticket{Entry: ahead})
			}
			if c.removed {
				if err := d.store.conn.Delete(first.Key, -1); err != nil {
					t.Fatal(err)
				}
			}
			if !c.marked {
				if err := d.store.Delete(ctx, &kvqueue.Ticket{Entry: ahead, Held: c.held}); err != nil {
					t.Fatal(err)
				}
			}
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			handedOver := len(told) == 1 && len(told[0].Gone) == 1 && told[0].Gone[0].All
			if handedOver != c.wantHandedOver || !handedOver && len(told) > 0 {
				t.Errorf("told of %+v", told)
			}
		})
	}
}

// TestMarkedAtOnce has a permit be free between the create of a ticket and the listing
// after it: who was queued between the two has seen it wait, and waits for its mark.
func TestMarkedAtOnce(t *testing.T) {
	for children, want := range map[int]int32{2: 0, 3: 1} { // when it was created
		ctx, d := inside(t)
		r := driver.Request{Name: "x", ID: "held-1", Shared: true, Limit: 2, TTL: time.Minute, Renewed: true, Wait: true}
		enqueue(ctx, t, d, r)
		r.ID = "next-1"
		next := enqueue(ctx, t, d, r)
		d.store.unregister(next)
		p := &kvqueue.Put{Ticket: kvqueue.Ticket{Name: "x", ID: r.ID, Entry: kvqueue.Entry{Shared: true, Limit: 2}}, Request: &r}
		if placed := d.store.placed(ctx, p, created{path: next, children: children}, []byte("{}")); !placed.Granted {
			t.Fatalf("%+v", placed)
		}
		for quiet := 0; ; quiet++ {
			_, st, err := d.store.conn.Exists(next)
			if err != nil || st.Version > want {
				t.Fatalf("version %d, want %d (error %v)", st.Version, want, err)
			}
			if st.Version == want && (want > 0 || quiet > 20) {
				break
			}
			if !retry.Sleep(ctx, 10*time.Millisecond, nil) {
				t.Fatal("no mark")
			}
		}
	}
}

// TestBrokenWaiterIsNotGranted has a waiter's ticket removed while the client is away,
// and then the one ahead: it is not granted.
func TestBrokenWaiterIsNotGranted(t *testing.T) {
	p := testbed.SharedZookeeper(t).Proxy(t)
	ctx, d := insideAt(t, p.Addr())
	other, _, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, 5*time.Second, zk.WithLogInfo(false), zk.WithLogger(clientLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	r := driver.Request{Name: "x", ID: "ahead-1", TTL: time.Minute, Renewed: true, Wait: true}
	if _, err := d.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	}
	r.ID = "waits-1"
	joined, answer := make(chan struct{}), make(chan error, 1)
	r.Joined = func() { close(joined) }
	go func() {
		_, err := d.Acquire(ctx, r)
		answer <- err
	}()
	<-joined
	v, err := d.store.list(ctx, d.store.parent("x"))
	if err != nil || len(v.Entries) != 2 {
		t.Fatal(v, err)
	}
	var own, ahead string
	for _, e := range v.Entries {
		if e.Number == 1 {
			ahead = e.Key
		} else {
			own = e.Key
		}
	}
	p.Reset()
	for _, path := range []string{own, ahead} {
		if err := other.Delete(path, -1); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-answer; !errors.Is(err, driver.ErrLost) {
		t.Fatalf("a ticket that is gone: %v", err)
	}
}

// TestWatchedInTheEnd has the server not answer when the node of a ticket is to be
// watched: it is asked again.
func TestWatchedInTheEnd(t *testing.T) {
	s := newStore(options{})
	n := &node{path: "/locker/x/n"}
	s.nodes[n.path] = n
	s.young, s.watching = []*node{n}, true
	for i, want := range []int{0, 1, 1, 1} {
		if batch, more := s.takeDue(); len(batch) != want || !more {
			t.Fatalf("look %d: %v, %v", i, batch, more)
		}
	}
	n.watch.fired = make(chan zk.Event)
	for range 2 {
		if batch, _ := s.takeDue(); len(batch) > 0 {
			t.Fatal("it is watched")
		}
	}
	if s.watching {
		t.Error("the task goes on")
	}
}

// TestWatchesAreForgotten hands a lock over many times: what was watched for that does not
// stay on the books.
func TestWatchesAreForgotten(t *testing.T) {
	ctx, d := inside(t)
	conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, 5*time.Second, zk.WithLogInfo(false), zk.WithLogger(clientLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	other, err := New(conn, events, WithPrefix(d.store.base))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = other.Close() })
	var group sync.WaitGroup
	for i, d := range []*Driver{d, other, d, other} {
		group.Go(func() {
			for j := range 50 {
				r := driver.Request{Name: "x", ID: fmt.Sprint("id", i, "-", j), TTL: time.Minute, Renewed: true, Wait: true}
				g, err := d.Acquire(ctx, r)
				if err == nil {
					err = d.Release(ctx, r.Hold(g.Token))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	for _, d := range []*Driver{d, other} {
		for {
			d.store.mu.Lock()
			n := len(d.store.watches) + len(d.store.nodes)
			d.store.mu.Unlock()
			if n == 0 {
				break
			}
			if !retry.Sleep(ctx, 20*time.Millisecond, nil) {
				t.Fatalf("%d watches and nodes are left", n)
			}
		}
	}
}

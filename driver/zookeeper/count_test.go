package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// tell returns the server's answer to one of its four-letter words.
func tell(t testing.TB, srv *testbed.Server, word string) string {
	t.Helper()
	c, err := net.DialTimeout("tcp", srv.Addr(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, word)
	out, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// mntr asks the server what it has counted.
func mntr(t testing.TB, srv *testbed.Server) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for line := range strings.Lines(tell(t, srv, "mntr")) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			counts[strings.TrimPrefix(k, "zk_")] = int(n)
		}
	}
	return counts
}

// counted returns what the server counted while f ran.
func counted(t testing.TB, srv *testbed.Server, f func()) map[string]int {
	t.Helper()
	before := mntr(t, srv)
	f()
	after := mntr(t, srv)
	for k := range after {
		after[k] -= before[k]
	}
	return after
}

// TestRequests counts the requests that reach the server. A very long session
// keeps pings out of the figures.
func TestRequests(t *testing.T) {
	t.Parallel()
	srv := quietServer(t)
	at := srv.URL() + "?session=10m"
	ctx := ctxFor(t, time.Minute)
	a, b := client(t, at), client(t, at)
	long := 0 // cycles of a machine that stood still: a lock that is held for so long costs one more
	cycle := func(name string) {
		began := time.Now()
		k := must[*locker.Lock](t)(a.Acquire(ctx, name))
		if err := k.Release(ctx); err != nil {
			t.Fatal(err)
		}
		if time.Since(began) >= 50*time.Millisecond {
			long++
		}
	}
	cycle("x")
	must[locker.Queue](t)(b.Inspect(ctx, "x")) // both are connected
	const n = 50
	got := counted(t, srv, func() {
		for i := range n {
			cycle(fmt.Sprint("x", i%7)) // also names that are new
		}
	})
	if r := got["packets_received"]; r < 2*n+1 || r > 2*n+1+long { // with mntr's own
		t.Errorf("%d requests for %d uncontended cycles, %d of them long, want 2 each", r, n, long)
	}
	k := must[*locker.Lock](t)(a.Acquire(ctx, "x"))
	for mntr(t, srv)["watch_count"] == 0 { // the holder watches its node
		sleep(ctx, t)
	}
	got = counted(t, srv, func() {
		for range n {
			if _, err := b.TryAcquire(ctx, "x"); !errors.Is(err, locker.ErrNotAcquired) {
				t.Fatal(err)
			}
		}
	})
	if r := got["packets_received"]; r > 2*n+3 {
		t.Errorf("%d requests for %d refused attempts, want 2 each", r, n)
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestNoHerd queues a hundred waiters, on ten connections: each has one watch on
// the ticket ahead and one on its own, and a release wakes one waiter.
func TestNoHerd(t *testing.T) {
	srv := quietServer(t)
	for _, mode := range []struct {
		name string
		opts []locker.Option
	}{{"exclusive", nil}, {"semaphore", []locker.Option{locker.Limit(3)}}} {
		t.Run(mode.name, func(t *testing.T) { noHerd(t, srv, mode.opts) })
	}
}

func noHerd(t *testing.T, srv *testbed.Server, opts []locker.Option) {
	t.Helper()
	at := srv.URL() + "?session=10m"
	ctx, cancel := context.WithCancel(ctxFor(t, 2*time.Minute))
	clients := make([]*locker.Client, 10)
	for i := range clients {
		clients[i] = client(t, at)
	}
	holders := 1
	if opts != nil {
		holders = 3
	}
	var held []*locker.Lock
	for i := range holders {
		held = append(held, must[*locker.Lock](t)(clients[i].Acquire(ctx, "x", opts...)))
	}
	granted := make(chan *locker.Lock, 100)
	var group sync.WaitGroup
	for i := range 100 {
		group.Go(func() {
			k, err := clients[i%len(clients)].Acquire(ctx, "x", opts...)
			if err == nil {
				granted <- k
			}
		})
		if i < 5 || i == 99 {
			queueOf(t, clients[0], "x", i+1+holders)
		}
	}
	settle(t, srv)
	watches := mntr(t, srv)["watch_count"]
	if watches > 2*100+holders+1 {
		t.Errorf("%d watches for 100 waiters", watches)
	}
	const releases = 20
	begun := time.Now()
	got := counted(t, srv, func() {
		for range releases {
			if err := held[0].Release(ctx); err != nil {
				t.Fatal(err)
			}
			held = append(held[1:], <-granted)
		}
	})
	sent, received := got["packets_sent"], got["packets_received"]
	events := sent - received // packets that are sent and are no answers
	t.Logf("%d watches; a release costs %.1f requests and %.1f events",
		watches, float64(received)/releases, float64(events)/releases)
	// The one that is woken and the releaser, which watches its own node; a
	// semaphore wakes also the one after, which is now at the head. And mntr.
	if most := (holders+3)/2*releases + 4; events > most {
		t.Errorf("%d events for %d releases with 100 waiters, want %d at most", events, releases, most)
	}
	pings := len(clients) * (int(time.Since(begun)/time.Second) + 1) // of Clients that wait: sync and list
	if most := 3*releases + 4 + 2*pings; received > most {
		t.Errorf("%d requests for %d releases with 100 waiters, want %d at most", received, releases, most)
	}
	cancel()
	group.Wait()
	close(granted)
	for k := range granted {
		held = append(held, k)
	}
	for _, k := range held {
		if err := k.Release(ctx); err != nil {
			t.Error(err)
		}
	}
	queueOf(t, clients[0], "x", 0)
	settle(t, srv)
	if n := mntr(t, srv)["watch_count"]; n > 0 {
		t.Errorf("%d watches are left when nobody waits", n)
	}
}

// watchedBy waits until n sessions watch the node, or its data, at path on the
// shared server.
func watchedBy(t testing.TB, path string, n int) {
	t.Helper()
	ctx := ctxFor(t, 20*time.Second)
	for {
		found, at := 0, ""
		for line := range strings.Lines(tell(t, testbed.SharedZookeeper(t), "wchp")) {
			if !strings.HasPrefix(line, "\t") {
				at = strings.TrimSpace(line)
			} else if at == path {
				found++
			}
		}
		if found == n {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("%s is watched by %d sessions, want %d", path, found, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// settle waits until the server has had nothing to do for a while. Requests that wait for
// its disk are something to do.
func settle(t testing.TB, srv *testbed.Server) {
	t.Helper()
	for quiet := 0; quiet < 4; {
		got := counted(t, srv, func() { time.Sleep(50 * time.Millisecond) })
		if got["packets_received"] <= 1 && mntr(t, srv)["outstanding_requests"] <= 0 {
			quiet++
		} else {
			quiet = 0
		}
	}
}

// TestWatchesDoNotGrow gives up waiting for the same lock again and again.
func TestWatchesDoNotGrow(t *testing.T) {
	srv := quietServer(t)
	at := srv.URL() + "?session=10m"
	ctx := ctxFor(t, time.Minute)
	var giveUp context.CancelFunc // called some time after the ticket is queued
	b := must[*locker.Client](t)(locker.Open(ctx, at, locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			time.AfterFunc(20*time.Millisecond, giveUp)
		}
	})))
	t.Cleanup(func() { _ = b.Close() })
	k := must[*locker.Lock](t)(client(t, at).Acquire(ctx, "x"))
	wait := func() {
		var waiting context.Context
		waiting, giveUp = context.WithCancel(ctx)
		defer giveUp()
		if _, err := b.Acquire(waiting, "x"); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	wait()
	begun := time.Now()
	got := counted(t, srv, func() {
		for range 30 {
			wait()
		}
	})
	pings := int(time.Since(begun)/time.Second) + 1       // of the Client, which waits nearly all the time: sync and list
	if r := got["packets_received"]; r > 30*4+2+2*pings { // join, list, watch itself, leave
		t.Errorf("%d requests for 30 waits: the watch on the holder was not used again", r)
	}
	settle(t, srv)
	if n := mntr(t, srv)["watch_count"]; n > 2 { // the holder's own, and one on the holder that waiters left
		t.Errorf("%d watches on a lock that is held and that nobody waits for", n)
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

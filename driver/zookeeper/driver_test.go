package zookeeper_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

const session = 10 * time.Second

// open opens a driver by URL, closed at the end of the test.
func open(t testing.TB, url string) driver.Driver {
	t.Helper()
	u, err := driver.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	d, err := driver.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// storeURL returns a URL of the shared server with a chroot of its own: whoever creates a node
// decides who may create others below it.
func storeURL(t testing.TB) string {
	return testbed.SharedZookeeper(t).URL() + "/t-" + rand.Text() + "?session=" + session.String()
}

// base returns the node that such a URL names.
func base(url string) string {
	path, _, _ := strings.Cut(url[strings.Index(url, "/t-"):], "?")
	return path + "/locker"
}

func client(t testing.TB, url string) *locker.Client {
	t.Helper()
	c := locker.New(open(t, url))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// slots bounds how many tests have servers of their own at once.
var slots = make(chan struct{}, 3)

// slot waits for one, which the test keeps until its servers are gone.
func slot(t testing.TB) {
	t.Helper()
	slots <- struct{}{}
	t.Cleanup(func() { <-slots })
}

// quietServer starts a server for a test that counts what its server does. Its
// sessions are so long that there are no pings.
func quietServer(t testing.TB) *testbed.Server {
	t.Helper()
	slot(t)
	return testbed.Zookeeper(t, testbed.Args("maxSessionTimeout=600000"))
}

// admin returns a plain connection to the shared server.
func admin(t testing.TB) *zk.Conn {
	t.Helper()
	return connect(t, testbed.SharedZookeeper(t).Addr())
}

func connect(t testing.TB, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, 5*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// lostSoon fails unless the lock is lost within a second, not counting the time in
// which the machine ran others: a notification is that fast, and a renewal is not.
func lostSoon(t *testing.T, k *locker.Lock) {
	t.Helper()
	took := testbed.Elapsed(func() {
		select {
		case <-k.Done():
		case <-time.After(20 * time.Second):
		}
	})
	if took > time.Second || !errors.Is(k.Err(), locker.ErrLost) {
		t.Fatalf("the holder was notified after %v: %v", took, k.Err())
	}
}

func ctxFor(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestCycle(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	a, b := client(t, url), client(t, url)
	ctx := ctxFor(t, 20*time.Second)
	var last uint64
	for i := range 20 {
		c := []*locker.Client{a, b}[i%2]
		k := must[*locker.Lock](t)(c.Acquire(ctx, "cycle"))
		if k.Token() <= last {
			t.Fatalf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		if _, err := a.TryAcquire(ctx, "cycle", locker.WithOwner("other")); !errors.Is(err, locker.ErrNotAcquired) {
			t.Fatalf("second: %v", err)
		}
		if err := k.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if left := nodes(t, admin(t), base(url)); len(left) != 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestHandOff(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, 20*time.Second)
	clients := make([]*locker.Client, 5)
	for i := range clients {
		clients[i] = client(t, url)
	}
	first := must[*locker.Lock](t)(clients[0].Acquire(ctx, "x"))
	order := make(chan int, len(clients))
	var all sync.WaitGroup
	for i := 1; i < len(clients); i++ {
		all.Go(func() {
			k, err := clients[i].Acquire(ctx, "x")
			if err != nil {
				t.Error(err)
				order <- -1
				return
			}
			order <- i
			if err := k.Release(ctx); err != nil {
				t.Error(err)
			}
		})
		for {
			l := must[locker.Queue](t)(clients[0].Inspect(ctx, "x"))
			if len(l.Tickets) == i+1 {
				break
			}
		}
	}
	if err := first.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(clients); i++ {
		if got := <-order; got != i {
			t.Fatalf("position %d went to %d", i, got)
		}
	}
	all.Wait()
	queueOf(t, clients[0], "x", 0)
	if err := clients[0].Close(); err != nil {
		t.Fatal(err)
	}
	if left := nodes(t, admin(t), base(url)); len(left) != 0 {
		t.Fatalf("the last one of a crowd has left %v", left)
	}
}

// TestCancelledInQueue cancels a waiter: the next one goes on waiting for the
// holder.
func TestCancelledInQueue(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, 20*time.Second)
	a, b, c := client(t, url), client(t, url), client(t, url)
	held := must[*locker.Lock](t)(a.Acquire(ctx, "x"))
	short, cancel := context.WithCancel(ctx)
	left := make(chan error, 1)
	go func() {
		_, err := b.Acquire(short, "x")
		left <- err
	}()
	queueOf(t, a, "x", 2)
	granted := make(chan *locker.Lock, 1)
	go func() {
		k, err := c.Acquire(ctx, "x")
		if err != nil {
			t.Error(err)
		}
		granted <- k
	}()
	queueOf(t, a, "x", 3)
	watchedBy(t, ticketNode(t, admin(t), url, 1), 2) // by its own session, and the next waiter's
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	queueOf(t, a, "x", 2)
	select {
	case <-granted:
		t.Fatal("granted while another holds")
	case <-time.After(300 * time.Millisecond):
	}
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := (<-granted).Release(ctx); err != nil {
		t.Fatal(err)
	}
}

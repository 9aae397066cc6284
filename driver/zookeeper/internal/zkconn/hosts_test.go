package zkconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/internal/testbed"
)

// TestServerMoves changes the address of a server: the client finds it.
func TestServerMoves(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedZookeeper(t)
	_, port, err := net.SplitHostPort(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	before := relay(t, net.JoinHostPort("127.0.0.2", port), srv.Addr())
	var moved atomic.Bool
	o := Options{Base: "/", Session: 10 * time.Second, Servers: []string{"store.example:" + port}, Dial: time.Second}
	n := newNetwork(o.Servers, nil, o.Dial, o.Session)
	n.find = func(context.Context, string) ([]string, error) {
		if moved.Load() {
			return []string{"127.0.0.1"}, nil
		}
		return []string{"127.0.0.2"}, nil
	}
	c, err := open(n, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(false)
	c.Start(func(*Session) { t.Error("the session has ended") }, func(zk.Event) {})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Confirm(ctx); err != nil {
		t.Fatal(err)
	}
	moved.Store(true)
	before()
	for err := errors.New("not asked"); err != nil; err = c.Confirm(ctx) {
		if ctx.Err() != nil {
			t.Fatalf("after the move: %v", err)
		}
	}
}

// relay forwards connections until end is called.
func relay(t *testing.T, at, to string) (end func()) {
	t.Helper()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Skipf("no second address on this machine: %v", err)
	}
	var (
		mu    sync.Mutex
		conns []net.Conn
		work  sync.WaitGroup
	)
	pass := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		_ = dst.Close()
	}
	work.Go(func() {
		for {
			a, err := l.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				_ = a.Close()
				continue
			}
			mu.Lock()
			conns = append(conns, a, b)
			mu.Unlock()
			work.Go(func() { pass(a, b) })
			work.Go(func() { pass(b, a) })
		}
	})
	var once sync.Once
	end = func() {
		once.Do(func() {
			_ = l.Close()
			mu.Lock()
			for _, c := range conns {
				_ = c.Close()
			}
			mu.Unlock()
			work.Wait()
		})
	}
	t.Cleanup(end)
	return end
}

// The client tries all servers before it pauses, and the others first when a session has lost
// its server.
func TestOrderOfHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts(t.Context(), []string{"a:1", "b:1", "c:1"})
		close(h.start)
		var order []string
		next := func(paused bool) {
			t.Helper()
			server, pause := h.Next()
			if pause != paused {
				t.Errorf("try %d: pause %v, want %v", len(order), pause, paused)
			}
			if n := len(order); n >= 3 && order[n-3] != server {
				t.Errorf("%s is tried after %v", server, order)
			}
			order = append(order, server)
		}
		for round := range 2 {
			for i := range 3 {
				next(round > 0 && i == 0)
			}
		}
		time.Sleep(2 * clientPause)
		next(false) // the round was long
		h.Connected()
		next(true) // the server takes sessions, and drops them at once
		h.Connected()
		time.Sleep(steadyAfter)
		next(false)
	})
}

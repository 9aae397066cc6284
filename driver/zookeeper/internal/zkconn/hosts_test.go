package zkconn

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
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
	n.hosts.lookup = func(context.Context, string) ([]string, error) {
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

// TestLookupHangs: a lookup of hosts, which takes seconds if the resolver does not
// answer, makes no other caller wait.
func TestLookupHangs(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancel(t.Context())
	h := newHosts(life, []string{"store.example:2181"})
	asked, ended := make(chan struct{}), make(chan struct{})
	h.lookup = func(ctx context.Context, _ string) ([]string, error) {
		close(asked)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	go func() {
		h.Next()
		close(ended)
	}()
	<-asked
	answered := make(chan int, 1)
	go func() { answered <- h.Len() }()
	select {
	case n := <-answered:
		if n != 1 {
			t.Errorf("%d hosts, want 1", n)
		}
	case <-time.After(lookupBound / 2):
		t.Error("Len waits for a lookup")
	}
	end()
	<-ended
}

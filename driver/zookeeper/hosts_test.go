package zookeeper

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestServerMoves has the address of a server change: it is found.
func TestServerMoves(t *testing.T) {
	srv := testbed.SharedZookeeper(t)
	_, port, err := net.SplitHostPort(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	before := relay(t, net.JoinHostPort("127.0.0.2", port), srv.Addr())
	var moved atomic.Bool
	d, err := prepare([]Option{WithPrefix("t/moves")})
	if err != nil {
		t.Fatal(err)
	}
	d.owned = true
	c := newConnection([]string{"store.example:" + port}, nil, time.Second, d.asked)
	c.hosts.lookup = func(context.Context, string) ([]string, error) {
		if moved.Load() {
			return []string{"127.0.0.1"}, nil
		}
		return []string{"127.0.0.2"}, nil
	}
	if err := d.dial(c); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r := driver.Request{Name: "x", ID: "moves-1", TTL: time.Minute, Renewed: true}
	if _, err := d.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	}
	moved.Store(true)
	before()
	for {
		err := d.Renew(ctx, r.Hold(0), time.Minute)
		if err == nil {
			break
		}
		if ctx.Err() != nil || errors.Is(err, driver.ErrLost) {
			t.Fatalf("after the move: %v", err)
		}
	}
	if err := d.Release(ctx, r.Hold(0)); err != nil {
		t.Fatal(err)
	}
}

// relay passes connections on until end is called.
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

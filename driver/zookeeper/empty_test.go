package zookeeper_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestStartedEmpty: the servers lose their data, and are started again. They refuse a client that has seen more than they
// have, until its session must be over. Then the driver works again (D16): what was held is lost, and who waits is granted.
func TestStartedEmpty(t *testing.T) {
	t.Parallel()
	slot(t)
	srv, ctx := testbed.SharedZookeeper(t), ctxFor(t, 60*time.Second)
	var server atomic.Pointer[testbed.Server]
	var present atomic.Pointer[net.Conn]
	server.Store(srv)
	through := relay(t, func() (net.Conn, error) {
		conn, err := net.Dial("tcp", server.Load().Addr())
		if err == nil {
			present.Store(&conn)
		}
		return conn, err
	})
	at := strings.Replace(storeURL(t), srv.Addr(), through, 1)
	d := must[*zookeeper.Driver](t)(zookeeper.Open(ctx, strings.Replace(at, "session="+session.String(), "session=4s", 1)))
	c := locker.New(d)
	t.Cleanup(func() { _ = c.Close() })
	for range 100 { // more than the empty server has
		if err := c.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	held := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	ended := make(chan error, 1)
	go func() {
		k, err := c.Acquire(ctx, "x")
		if err == nil {
			err = k.Release(ctx)
		}
		ended <- err
	}()
	queueOf(t, c, "x", 2)
	server.Store(testbed.Zookeeper(t, testbed.Faults()))
	(*present.Load()).Close()
	if <-held.Done(); !errors.Is(held.Err(), locker.ErrLost) {
		t.Errorf("the holder: %v", held.Err())
	}
	if err := <-ended; err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

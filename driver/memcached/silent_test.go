package memcached_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// lostConn loses all that is written, as a network does that has lost the way to a server.
type lostConn struct {
	net.Conn
	lost *atomic.Bool
}

func (c *lostConn) Write(p []byte) (int, error) {
	if c.lost.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// A connection on which nothing is answered is given up, even if nobody waits for an answer as long as the timeout.
func TestSilentConnection(t *testing.T) {
	t.Parallel()
	lost := new(atomic.Bool)
	d, err := memcached.New([]string{testbed.SharedMemcached(t).Addr()}, memcached.WithTimeout(500*time.Millisecond, 10*time.Second),
		memcached.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			is := lost
			lost = new(atomic.Bool) // the next connection is not
			return &lostConn{c, is}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	first := lost
	if err := d.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Store(true)
	for begun := time.Now(); time.Since(begun) < 20*time.Second; {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = d.Inspect(ctx, "a")
		cancel()
		if err == nil {
			return
		}
	}
	t.Errorf("no answer on the connection that was lost, and no other one: %v", err)
}

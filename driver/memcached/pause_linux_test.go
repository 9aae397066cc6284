package memcached_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// Pauses are exact beside a socket. A connection that a dialer has made otherwise may live in a bubble of testing/synctest,
// where nobody may wait for the system.
func TestPause(t *testing.T) {
	t.Parallel()
	for _, socket := range []bool{true, false} {
		d, err := memcached.New([]string{testbed.SharedMemcached(t).Addr()}, memcached.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if !socket {
				c = struct{ net.Conn }{c}
			}
			return c, err
		}))
		if err != nil {
			t.Fatal(err)
		}
		if d.Pause(time.Microsecond) {
			t.Error("a pause before there is a connection")
		}
		if err := d.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		const pause = 300 * time.Microsecond
		least := time.Hour
		for range 20 {
			begun := time.Now()
			if d.Pause(pause) != socket {
				t.Errorf("a pause beside a socket, %v", socket)
			}
			least = min(least, time.Since(begun))
		}
		if socket && (least < pause || least > 900*time.Microsecond) {
			t.Errorf("the shortest of 20 pauses of %v took %v", pause, least)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

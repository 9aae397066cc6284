package zkconn

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/internal/testbed"
)

// TestSlowServer: a server that takes seconds to answer gives a session in the end, if
// there is no better one.
func TestSlowServer(t *testing.T) {
	t.Parallel()
	p := testbed.SharedZookeeper(t).Proxy(t)
	p.Delay(1100 * time.Millisecond) // each way
	c, err := Open(Options{Base: "/", Session: 10 * time.Second, Servers: []string{p.Addr()}, Dial: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(false)
	c.Start(func(*Session) {}, func(zk.Event) {})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	present(ctx, t, c)
}

package redisqueue_test

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// TestClosedIsReset: a connection that is closed is reset, so that the system does not go on
// sending what was not acknowledged.
func TestClosedIsReset(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	ended := make(chan error, 1)
	connected := make(chan struct{})
	go func() {
		conn, err := server.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		close(connected)
		_, err = io.Copy(io.Discard, conn)
		ended <- err
	}()
	u, err := driver.ParseURL("redis://" + server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	o, err := redisqueue.ClientOptions(u, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.ReadTimeout = -1, 100*time.Millisecond
	c := redis.NewClient(o.Simple())
	go c.Ping(t.Context()) // which is not answered
	<-connected
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection has ended with %v", err)
	}
}

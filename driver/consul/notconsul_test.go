package consul_test

import (
	"errors"
	"net"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// A server that answers another protocol is not Consul: as if there were none at its address.
func TestAnotherProtocol(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	defer func() { <-done }()
	defer l.Close()
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1024)) // else the client may not have sent its request yet, and say so
			_, _ = c.Write([]byte("INFO {\"server_id\":\"N\"}\r\n"))
			_ = c.Close()
		}
	}()
	d, err := open(t.Context(), "consul://"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.(driver.Pinger).Ping(t.Context()); !driver.IsUnavailable(err) {
		t.Errorf("ping: %v", err)
	}
	r := driver.Request{Name: "a", ID: "a", TTL: 10_000_000_000}
	if _, err := d.Acquire(t.Context(), r); !driver.IsUnavailable(err) || errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("acquire: %v", err)
	}
}

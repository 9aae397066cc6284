package zkconn

import (
	"context"
	"net"
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

// TestOtherAddressFirst: of two servers behind one name, each try is for the other one.
func TestOtherAddressFirst(t *testing.T) {
	t.Parallel()
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, port, _ := net.SplitHostPort(first.Addr().String())
	second, err := net.Listen("tcp", "127.0.0.2:"+port)
	if err != nil {
		t.Skipf("no second address on this machine: %v", err)
	}
	defer second.Close()
	n := newNetwork([]string{"store.example:" + port}, nil, time.Second, 10*time.Second)
	defer n.close()
	n.find = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1", "127.0.0.2"}, nil }
	last := ""
	for range 10 {
		conn, err := n.connect("tcp", "store.example", port)
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if addr := conn.RemoteAddr().String(); addr == last {
			t.Fatalf("%s is tried twice in a row", addr)
		} else {
			last = addr
		}
	}
	if !n.hasSeveral() {
		t.Error("a name with two addresses is taken for one server")
	}
}

// TestHalfAnAnswer: a server hangs in the middle of its first answer. The client goes to the next one.
func TestHalfAnAnswer(t *testing.T) {
	t.Parallel()
	p := testbed.SharedZookeeper(t).Proxy(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asked := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				close(asked)
				return
			}
			_, _ = conn.Write([]byte{0, 0, 0, 41}) // its length
			asked <- conn
		}
	}()
	o := Options{Base: "/", Session: 10 * time.Second, Servers: []string{ln.Addr().String(), p.Addr()}, Dial: time.Second}
	n := newNetwork(o.Servers, nil, o.Dial, o.Session)
	n.hosts.names = o.Servers // in this order
	c, err := open(n, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(false)
	c.Start(func(*Session) {}, func(zk.Event) {})
	conn := <-asked
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	present(ctx, t, c)
}

// TestIdleAfterFirstAnswer: the bound for the first answer does not end a connection that is idle after it.
func TestIdleAfterFirstAnswer(t *testing.T) {
	t.Parallel()
	c, err := Open(Options{Base: "/", Session: 10 * time.Second, Servers: []string{testbed.SharedZookeeper(t).Addr()}, Dial: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(false)
	c.Start(func(*Session) {}, func(zk.Event) {})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	present(ctx, t, c)
	n := c.Number()
	time.Sleep(answerFirst + time.Second/2)
	if !c.Same(n) {
		t.Errorf("the state of the connection has changed %d times", c.Number()-n)
	}
}

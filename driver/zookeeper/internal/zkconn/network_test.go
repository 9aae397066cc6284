package zkconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
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

// sent is a connection to a server that keeps the last request.
type sent struct {
	net.Conn
	server net.Addr
	last   []byte
}

func (s *sent) RemoteAddr() net.Addr { return s.server }

func (s *sent) Write(p []byte) (int, error) {
	s.last = slices.Clone(p)
	return len(p), nil
}

// TestLastTransaction: the client's first request names its session, and the last transaction that it has seen, unless the session
// must be over and the server refuses it. No other request is changed.
func TestLastTransaction(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	request := make([]byte, 60)
	for i := range request {
		request[i] = byte(i + 1)
	}
	binary.BigEndian.PutUint32(request[16:], uint32(timeout.Milliseconds()))
	anew := slices.Clone(request)
	clear(anew[8:16])
	clear(anew[20:28])
	first := slices.Clone(request)
	clear(first[8:16])
	refuses, answers, nobody := answering(t, nil), answering(t, []byte{0}), &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}
	hangs := hanging(t).Addr()
	over := time.Now().Add(-2*timeout - time.Second)
	for name, c := range map[string]struct {
		lost    time.Time
		server  net.Addr
		request []byte
		want    []byte
	}{
		"no session was lost":                       {time.Time{}, refuses, request, request},
		"the session may be alive":                  {time.Now().Add(-2*timeout + time.Second), refuses, request, request},
		"the session must be over, and is not":      {over, answers, request, request},
		"the session must be over, and is refused":  {over, refuses, request, anew},
		"the session must be over, nobody listens":  {over, nobody, request, request},
		"the session must be over, nobody answers":  {over, hangs, request, request},
		"there was no session, the server is empty": {over, refuses, first, first},
	} {
		n := newNetwork([]string{"store.example:2181"}, nil, time.Second, time.Second)
		n.lost = c.lost
		n.find = func(context.Context, string) ([]string, error) {
			return nil, errors.New("this server is asked, not another one of that name")
		}
		if c.server == hangs {
			n.answer = time.Millisecond
		}
		s := sent{server: c.server}
		b := &boundedConn{Conn: &s, network: n, address: "store.example:2181"}
		before := slices.Clone(c.request)
		if _, err := b.Write(c.request); err != nil || !slices.Equal(s.last, c.want) || !slices.Equal(c.request, before) {
			t.Errorf("%s: %x is sent, want %x (error %v)", name, s.last, c.want, err)
		}
		if c.lost == over && c.server == answers && time.Until(b.until) <= 0 {
			t.Errorf("%s: no time is left for the answer", name)
		}
		if _, err := b.Write(request); err != nil || !slices.Equal(s.last, request) {
			t.Errorf("%s: the second request is changed: %x (error %v)", name, s.last, err)
		}
	}
}

// TestClosedBeforeTheAnswer: the connection is closed while the client asks whether a server refuses its session. It does not wait for
// that any more.
func TestClosedBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	ln := hanging(t)
	n := newNetwork([]string{"store.example:2181"}, nil, time.Second, time.Second)
	n.answer, n.lost = time.Minute, time.Now().Add(-time.Minute)
	go func() {
		if conn, err := ln.Accept(); err == nil {
			t.Cleanup(func() { _ = conn.Close() })
			_, _ = conn.Read(make([]byte, 60))
			n.close()
		}
	}()
	b := &boundedConn{Conn: &sent{server: ln.Addr()}, network: n, address: "store.example:2181"}
	begun := time.Now()
	if _, err := b.Write(bytes.Repeat([]byte{0, 0, 0, 1}, 15)); err != nil || time.Since(begun) > 30*time.Second {
		t.Errorf("after %v: %v", time.Since(begun), err)
	}
}

// hanging returns a server that answers nothing.
func hanging(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln
}

// answering returns the address of a server that reads a request, answers it so, and ends the connection.
func answering(t *testing.T, answer []byte) net.Addr {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 60))
			_, _ = conn.Write(answer)
			_ = conn.Close()
		}
	}()
	return ln.Addr()
}

// TestLostSince: the time without a session begins when the connection is lost, not with each attempt after it.
func TestLostSince(t *testing.T) {
	t.Parallel()
	n := newNetwork([]string{"store.example:2181"}, nil, time.Second, time.Second)
	n.fail(net.ErrClosed)
	first := n.lost
	n.fail(errors.New("no session"))
	if first.IsZero() || n.lost != first {
		t.Errorf("lost at %v, and then %v", first, n.lost)
	}
	if n.hasSession(); !n.lost.IsZero() {
		t.Error("there is a session, and it counts as lost")
	}
}

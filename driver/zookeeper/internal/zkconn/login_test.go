package zkconn

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// mute returns the address of a server that gives one session, and answers nothing else. begun is closed when the client has sent
// something more.
func mute(t *testing.T) (addr string, begun <-chan struct{}) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	asked := make(chan struct{})
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		request := func() error {
			var size [4]byte
			if _, err := io.ReadFull(conn, size[:]); err != nil {
				return err
			}
			_, err := io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(size[:])))
			return err
		}
		if request() != nil {
			return
		}
		answer := binary.BigEndian.AppendUint32(nil, 36) // the length of: version, timeout, session, password
		answer = binary.BigEndian.AppendUint32(answer, 0)
		answer = binary.BigEndian.AppendUint32(answer, 10_000)
		answer = binary.BigEndian.AppendUint64(answer, 7)
		answer = binary.BigEndian.AppendUint32(answer, 16)
		if _, err := conn.Write(append(answer, make([]byte, 16)...)); err != nil || request() != nil {
			return
		}
		close(asked)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return ln.Addr().String(), asked
}

// TestLoginNotAnswered: a server hangs before it answers the login. A request ends with its context, or with the Conn, and says which.
// Close does not wait for the login.
func TestLoginNotAnswered(t *testing.T) {
	t.Parallel()
	addr, asked := mute(t)
	c, err := Open(Options{Base: "/", Session: 10 * time.Second, Servers: []string{addr}, Dial: time.Second, Credentials: "me:secret"})
	if err != nil {
		t.Fatal(err)
	}
	c.Start(func(*Session) {}, func(zk.Event) {})
	first, others := make(chan error, 1), make(chan error, 10)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { first <- c.Confirm(ctx) }()
	<-asked
	for range cap(others) {
		go func() { others <- c.Confirm(t.Context()) }()
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("a request whose context has ended: %v", err)
	}
	begun := time.Now()
	c.Close(false)
	if took := time.Since(begun); took > 150*time.Millisecond {
		t.Errorf("Close took %v", took)
	}
	for range cap(others) {
		if err := <-others; !errors.Is(err, driver.ErrClosed) {
			t.Errorf("a request during Close: %v", err)
		}
	}
}

package zookeeper_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// deposed returns the address of a server that is to a client what a leader is that the others
// have deposed, and that has not noticed: it takes over sessions, answers reads and syncs from
// before, here of an empty tree, and never answers a write. stop ends it.
func deposed(t *testing.T) (addr string, stop func()) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	context.AfterFunc(ctx, func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			context.AfterFunc(ctx, func() { c.Close() })
			go serveDeposed(c)
		}
	}()
	return ln.Addr().String(), stop
}

func serveDeposed(c net.Conn) {
	const (
		exists, get, children, sync, ping, children2, setWatches = 3, 4, 8, 9, 11, 12, 101

		noNode = -101
	)
	defer c.Close()
	asked := frame(c) // version, last zxid, timeout, session, password
	if len(asked) < 44 {
		return
	}
	send(c, append(append([]byte{0, 0, 0, 0}, asked[12:16]...), asked[16:44]...))
	for {
		r := frame(c) // number, operation, and more
		if len(r) < 8 {
			return
		}
		code := int32(0)
		var more []byte
		switch binary.BigEndian.Uint32(r[4:]) {
		case ping, setWatches:
		case sync:
			more = r[8:] // the path
		case exists, get, children, children2:
			code = noNode
		default:
			continue
		}
		answer := append(r[:4:4], make([]byte, 8)...)
		send(c, append(binary.BigEndian.AppendUint32(answer, uint32(code)), more...))
	}
}

// frame reads a message of ZooKeeper's protocol, or nil.
func frame(c net.Conn) []byte {
	var size [4]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil
	}
	m := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c, m); err != nil {
		return nil
	}
	return m
}

func send(c net.Conn, m []byte) {
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...))
}

// TestReleaseByDeposedLeader: a create was done and not answered, and a deposed leader, which
// does not have the node, is asked for it next. That must not be believed: the node would stay
// for as long as its session.
func TestReleaseByDeposedLeader(t *testing.T) {
	t.Parallel()
	srv, at := testbed.SharedZookeeper(t), storeURL(t)
	p := srv.Proxy(t)
	old, stop := deposed(t)
	ctx := ctxFor(t, 60*time.Second)
	var to atomic.Pointer[string]
	dial := func(addr string) { to.Store(&addr) }
	dial(p.Addr())
	conn, events, err := zk.Connect([]string{srv.Addr()}, 15*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}),
		zk.WithDialer(func(network, _ string, timeout time.Duration) (net.Conn, error) {
			return net.DialTimeout(network, *to.Load(), timeout)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base(at))))
	defer d.Close()
	warm := request("warm", "warm-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, warm))
	if err := d.Release(ctx, warm.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	dial(old)
	lost := p.LoseReply("late-1_x_")
	r := request("x", "late-1")
	given, giveUp := context.WithCancel(ctx)
	go func() { <-lost; giveUp() }()
	if _, err := d.Acquire(given, r); err == nil || errors.Is(err, driver.ErrNoTicket) {
		t.Fatalf("without an answer: %v", err)
	}
	removed := func(err error) bool { return err == nil || errors.Is(err, driver.ErrLost) }
	for range 3 {
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		err = d.Release(short, r.Hold(0))
		cancel()
		if removed(err) {
			t.Logf("a deposed leader was asked, and the release was answered: %v", err)
			break
		}
	}
	dial(srv.Addr())
	stop()
	for !removed(err) && ctx.Err() == nil {
		short, cancel := context.WithTimeout(ctx, time.Second)
		err = d.Release(short, r.Hold(0))
		cancel()
	}
	time.Sleep(3 * time.Second) // of the session's 15
	if names := nodes(t, admin(t), base(at)+"/x"); len(names) > 0 {
		t.Errorf("nodes %v are left", names)
	}
}

// TestBreakByDeposedLeader: a deposed leader, which does not have a ticket, does not say that there is none.
func TestBreakByDeposedLeader(t *testing.T) {
	t.Parallel()
	srv, at := testbed.SharedZookeeper(t), storeURL(t)
	old, stop := deposed(t)
	ctx := ctxFor(t, 60*time.Second)
	var to atomic.Pointer[string]
	var present atomic.Pointer[net.Conn]
	dial := func(addr string) { to.Store(&addr) }
	dial(srv.Addr())
	conn, events, err := zk.Connect([]string{srv.Addr()}, 15*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}),
		zk.WithDialer(func(network, _ string, timeout time.Duration) (net.Conn, error) {
			c, err := net.DialTimeout(network, *to.Load(), timeout)
			if err == nil {
				present.Store(&c)
			}
			return c, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base(at))))
	defer d.Close()
	g := must[driver.Grant](t)(d.Acquire(ctx, request("x", "held-1")))
	dial(old)
	(*present.Load()).Close()
	for range 4 { // the client reconnects after a second
		short, cancel := context.WithTimeout(ctx, 2*time.Second)
		if err := d.Break(short, "x", g.Token); err == nil || errors.Is(err, driver.ErrLost) {
			t.Errorf("a deposed leader was asked: %v", err)
		}
		cancel()
	}
	dial(srv.Addr())
	stop()
	for err = errors.New("not asked"); err != nil && !errors.Is(err, driver.ErrLost) && ctx.Err() == nil; {
		short, cancel := context.WithTimeout(ctx, time.Second)
		err = d.Break(short, "x", g.Token)
		cancel()
	}
	if err != nil {
		t.Errorf("then: %v", err)
	}
}

package zookeeper_test

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// limited dials a server whose longest session can be lowered: what clients ask for is cut to that.
type limited struct {
	mu      sync.Mutex
	most    time.Duration // 0: any
	present net.Conn
}

func (l *limited) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.present = conn
	return &limitedConn{Conn: conn, most: l.most}, nil
}

// lower sets the longest session, and ends the present connection.
func (l *limited) lower(most time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.most = most
	_ = l.present.Close()
}

type limitedConn struct {
	net.Conn
	most time.Duration // until the first write, which is the handshake
}

func (c *limitedConn) Write(b []byte) (int, error) {
	if most := c.most; most > 0 {
		c.most = 0
		binary.BigEndian.PutUint32(b[16:], uint32(most.Milliseconds())) // after the length, the version and the last zxid
	}
	return c.Conn.Write(b)
}

// TestShorterSession: a session comes back on a server that gives it a shorter timeout, as one whose
// maxSessionTimeout was lowered. The leases that were given before are longer than what it keeps: the
// holder learns of the loss before the next one is granted.
func TestShorterSession(t *testing.T) {
	t.Parallel()
	at := storeURL(t)
	ctx := ctxFor(t, 60*time.Second)
	var l limited
	conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, session,
		zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(l.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base(at))))
	c := locker.New(d)
	t.Cleanup(func() { _ = c.Close() })
	r := request("y", "held-1") // not of the core, which does not release it
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	l.lower(2 * time.Second)
	select {
	case <-k.Done():
	case <-time.After(10 * time.Second): // of renewals
	}
	if !errors.Is(k.Err(), locker.ErrLost) {
		t.Fatalf("the holder was not notified: %v, valid for %v", k.Err(), time.Until(k.Deadline()))
	}
	if err := d.Renew(ctx, r.Hold(g.Token), locker.DefaultTTL); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of the lease that is too long: %v", err)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
	empty(t, admin(t), at)
	again := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	if left := time.Until(again.Deadline()); left > time.Second {
		t.Errorf("the next lease is valid for %v, on a session of 2 s", left)
	}
	if err := again.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestShorterSessionUnnoticed: the event with which the session comes back was dropped. The next renewal
// notices that the session is shorter.
func TestShorterSessionUnnoticed(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, 60*time.Second)
	var l limited
	conn, _, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, session,
		zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(l.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, make(chan zk.Event), zookeeper.WithPrefix(base(storeURL(t)))))
	t.Cleanup(func() { _ = d.Close() })
	r := request("x", "held-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	l.lower(2 * time.Second)
	for conn.State() == zk.StateHasSession {
		sleep(ctx, t)
	}
	for err = errors.New("not asked"); err != nil && !errors.Is(err, driver.ErrLost) && ctx.Err() == nil; {
		err = d.Renew(ctx, r.Hold(g.Token), locker.DefaultTTL)
	}
	if !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of a lease that is too long: %v", err)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
}

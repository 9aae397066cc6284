package zookeeper_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
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

// relay returns an address at which a driver that dials itself comes to what dial connects to.
func relay(t *testing.T, dial func() (net.Conn, error)) string {
	t.Helper()
	ln := must[net.Listener](t)(net.Listen("tcp", "127.0.0.1:0"))
	t.Cleanup(func() { _ = ln.Close() })
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(struct{ io.Writer }{to}, from)
		_ = to.Close()
		_ = from.Close()
	}
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			conn, err := dial()
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(client, conn)
			go pass(conn, client)
		}
	}()
	return ln.Addr().String()
}

// limitedClient returns a Client on such a server, and its driver.
func limitedClient(t *testing.T, at string) (*locker.Client, *zookeeper.Driver, *limited) {
	t.Helper()
	l := &limited{}
	conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, session,
		zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(l.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base(at))))
	c := locker.New(d)
	t.Cleanup(func() { _ = c.Close() })
	return c, d, l
}

// TestShorterSession: a session comes back on a server that gives it a shorter timeout, as one whose
// maxSessionTimeout was lowered. The leases that were given before are longer than what it keeps: the
// holder learns of the loss before the next one is granted.
func TestShorterSession(t *testing.T) {
	t.Parallel()
	at := storeURL(t)
	ctx := ctxFor(t, 60*time.Second)
	c, d, l := limitedClient(t, at)
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

// TestShorterSessionAtOnce: a holder who does not renew is notified when the session comes back, not when the lease is over.
func TestShorterSessionAtOnce(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, 60*time.Second)
	c, _, l := limitedClient(t, storeURL(t))
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x", locker.WithoutRenewal(), locker.WithTTL(5*time.Second)))
	l.lower(2 * time.Second)
	select {
	case <-k.Done():
	case <-time.After(3500 * time.Millisecond):
		t.Errorf("not notified; valid for %v", time.Until(k.Deadline()))
	}
}

// TestLeaseWithinShorterSession: a lease that the shorter session keeps is not lost, until it is extended.
func TestLeaseWithinShorterSession(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, 60*time.Second)
	c, d, l := limitedClient(t, storeURL(t))
	r := request("y", "extended") // of a lease that may be as long as the session keeps it
	r.TTL = 4 * time.Second
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); err != nil {
		t.Fatal(err)
	}
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x", locker.WithTTL(4*time.Second)))
	before := d.Bounds(0).MaxTTL
	l.lower(8 * time.Second)
	for d.Bounds(0).MaxTTL == before {
		sleep(ctx, t)
	}
	if most := d.Bounds(0).MaxTTL; most < 4*time.Second || most >= before {
		t.Fatalf("the session keeps %v", most)
	}
	time.Sleep(2 * time.Second)
	if err := k.Err(); err != nil {
		t.Errorf("a lease of 4 s: %v", err)
	}
	if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of the lease that was extended: %v", err)
	}
	for _, release := range []error{d.Release(ctx, r.Hold(g.Token)), k.Release(ctx)} {
		if release != nil {
			t.Error(release)
		}
	}
}

// TestExtendedInShorterSession: a lock whose lease the shorter session keeps is extended for longer than the session keeps it. The
// holder does not count on more than the session gives.
func TestExtendedInShorterSession(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, 60*time.Second)
	c, d, l := limitedClient(t, storeURL(t))
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x", locker.WithTTL(4*time.Second)))
	before := d.Bounds(0).MaxTTL
	l.lower(8 * time.Second)
	for d.Bounds(0).MaxTTL == before {
		sleep(ctx, t)
	}
	most := d.Bounds(0).MaxTTL
	err := k.Extend(ctx, most-100*time.Millisecond)
	if err != nil {
		t.Errorf("extended for no longer than the session keeps it: %v", err)
	}
	err = k.Extend(ctx, before)
	if left := time.Until(k.Deadline()); left > most {
		t.Errorf("valid for %v, on a session that keeps a ticket for %v (extended: %v)", left, most, err)
	}
	if k.Err() != nil || !errors.Is(err, locker.ErrUnsupported) {
		t.Errorf("extended: %v, want ErrUnsupported; the lock: %v", err, k.Err())
	}
	if err := k.Release(ctx); err != nil {
		t.Error(err)
	}
}

// TestMinHoldInShorterSession: a session becomes shorter than a minimum hold while its ticket waits. The wait fails (D20).
func TestMinHoldInShorterSession(t *testing.T) {
	t.Parallel()
	at := storeURL(t)
	ctx := ctxFor(t, 60*time.Second)
	other := must[*locker.Client](t)(locker.Open(ctx, at))
	t.Cleanup(func() { _ = other.Close() })
	var l limited
	server := testbed.SharedZookeeper(t).Addr()
	through := relay(t, func() (net.Conn, error) { return l.dial("tcp", server, time.Second) })
	d := must[*zookeeper.Driver](t)(zookeeper.Open(ctx, strings.Replace(at, server, through, 1)))
	c := locker.New(d)
	t.Cleanup(func() { _ = c.Close() })
	first := must[*locker.Lock](t)(other.Acquire(ctx, "x"))
	ended := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, "x", locker.WithMinHold(5*time.Second))
		ended <- err
	}()
	for q := must[locker.Queue](t)(other.Inspect(ctx, "x")); len(q.Tickets) < 2; q = must[locker.Queue](t)(other.Inspect(ctx, "x")) {
		sleep(ctx, t)
	}
	before := d.Bounds(0).MaxTTL
	l.lower(2 * time.Second)
	for d.Bounds(0).MaxTTL == before {
		sleep(ctx, t)
	}
	if err := first.Release(ctx); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, locker.ErrUnsupported) {
		t.Errorf("got %v, want ErrUnsupported", err)
	}
	if err := must[*locker.Lock](t)(other.Acquire(ctx, "x")).Release(ctx); err != nil {
		t.Error(err)
	}
}

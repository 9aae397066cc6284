package zookeeper_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// setWatches is the request with which a client sets its watches again.
const setWatches = 101

// network dials for a client. It can be down, and can lose requests that set
// watches, as if the connection ended before they were sent.
type network struct {
	mu      sync.Mutex
	down    bool
	lose    bool
	present net.Conn
	lost    int
}

func (n *network) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.down {
		return nil, errors.New("the network is down")
	}
	conn, err := net.DialTimeout(network, address, timeout)
	if err != nil {
		return nil, err
	}
	n.present = conn
	return &tapped{Conn: conn, network: n}, nil
}

func (n *network) set(down, lose bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down, n.lose = down, lose
	if down {
		_ = n.present.Close()
	}
}

func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = false
	_ = n.present.Close()
}

// hasLost reports whether a request that sets watches was lost.
func (n *network) hasLost() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost > 0
}

type tapped struct {
	net.Conn
	network *network
	greeted bool // the first write is the handshake
}

func (t *tapped) Write(b []byte) (int, error) {
	t.network.mu.Lock()
	lose := t.greeted && t.network.lose && len(b) >= 12 && binary.BigEndian.Uint32(b[8:]) == setWatches
	if lose {
		t.network.lost++
	}
	t.network.mu.Unlock()
	t.greeted = true
	if lose {
		return len(b), nil
	}
	return t.Conn.Write(b)
}

// answered returns when the client has seen the answers to all requests before. Only then does it know of its watches,
// and sets them again on the next connection.
func answered(t *testing.T, conn *zk.Conn) {
	t.Helper()
	if _, _, err := conn.Exists("/zookeeper"); err != nil {
		t.Fatal(err)
	}
}

// TestWatchMissedOnReconnect: a permit is returned while the client has no connection,
// and the client sets its watches again as of a later answer. So no event comes, but
// the waiter is granted at once. In another case the client has not set its watches again
// at all when the permit is returned.
func TestWatchMissedOnReconnect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after  bool
		within time.Duration
	}{
		"events":  {within: 2 * time.Second},
		"not set": {within: time.Second, after: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			at := storeURL(t)
			ctx := ctxFor(t, 40*time.Second)
			var n network
			conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, session,
				zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(n.dial))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(conn.Close)
			d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base(at))))
			t.Cleanup(func() { _ = d.Close() })
			other := open(t, at)
			var held []driver.Hold
			for _, id := range []string{"held-1", "held-2"} {
				r, _ := permit(id, 2)
				g := must[driver.Grant](t)(other.Acquire(ctx, r))
				held = append(held, r.Hold(g.Token))
			}
			r, joined := permit("waits-1", 2)
			granted := make(chan error, 1)
			go func() {
				_, err := d.Acquire(ctx, r)
				granted <- err
			}()
			<-joined
			watchedBy(t, ticketNode(t, admin(t), at, 2), 1)
			answered(t, conn)

			n.set(true, false)
			for conn.State() == zk.StateHasSession {
				time.Sleep(time.Millisecond)
			}
			release := func() {
				if err := other.Release(ctx, held[0]); err != nil {
					t.Fatal(err)
				}
			}
			if !c.after {
				release()
			}
			n.set(false, true)
			for conn.State() != zk.StateHasSession {
				time.Sleep(time.Millisecond)
			}
			for !n.hasLost() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			// The answer to this request is later than the release.
			answered(t, conn)
			if c.after {
				time.Sleep(300 * time.Millisecond) // all that read again have read
				release()
			} else {
				n.cut()
			}
			took := testbed.Elapsed(func() {
				select {
				case err := <-granted:
					if err != nil {
						t.Fatal(err)
					}
				case <-ctx.Done():
					t.Fatal("a permit is free, and who waits is not granted")
				}
			})
			t.Logf("granted after %v", took.Round(time.Millisecond))
			if took > c.within {
				t.Errorf("a permit is free, and who waits is granted after %v, want %v", took, c.within)
			}
			if !n.hasLost() {
				t.Error("no request that sets watches was lost")
			}
		})
	}
}

// TestWayBack releases a lock while the connection to the server loses everything,
// with another lock on the same session. Once the connection is back, a repeated
// release (as the core's) succeeds, and the next waiter is granted.
func TestWayBack(t *testing.T) {
	t.Parallel()
	ways := map[string]struct{ lose, heal func(p *testbed.Proxy) }{
		"cut":    {(*testbed.Proxy).Cut, (*testbed.Proxy).Heal},
		"lossy":  {(*testbed.Proxy).Lose, (*testbed.Proxy).Heal},
		"lost":   {(*testbed.Proxy).Cut, func(p *testbed.Proxy) { p.Reset(); p.Heal() }},
		"refuse": {(*testbed.Proxy).Refuse, (*testbed.Proxy).Heal},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, p, direct := through(t)
			ctx := ctxFor(t, time.Minute)
			d, other := open(t, url), open(t, direct)
			held, released := request("held", "held-1"), request("x", "released-1")
			must[driver.Grant](t)(d.Acquire(ctx, held))
			g := must[driver.Grant](t)(d.Acquire(ctx, released))
			next := request("x", "next-1")
			joined, granted := make(chan struct{}), make(chan struct{})
			next.Joined = func() { close(joined) }
			go func() {
				if _, err := other.Acquire(ctx, next); err != nil {
					t.Error(err)
				}
				close(granted)
			}()
			<-joined

			way.lose(p)
			gone := make(chan struct{})
			go func() {
				defer close(gone)
				for ctx.Err() == nil {
					bound, cancel := context.WithTimeout(ctx, time.Second)
					err := d.Release(bound, released.Hold(g.Token))
					cancel()
					if err == nil || errors.Is(err, driver.ErrLost) {
						return
					}
					time.Sleep(250 * time.Millisecond)
				}
			}()
			time.Sleep(5 * time.Second)
			way.heal(p)
			took := testbed.Elapsed(func() { <-granted })
			<-gone
			t.Logf("free %v after the way was back", took.Round(time.Millisecond))
			if took > 2*time.Second {
				t.Errorf("free %v after the way was back, want 2s", took)
			}
			if err := d.Renew(ctx, held.Hold(0), time.Second); err != nil {
				t.Errorf("the other lock of the session: %v", err)
			}
		})
	}
}

// TestRenewalAfterReconnect: a lock's node is deleted while the client has no connection,
// and the lock is renewed on the next one before the client has set its watch again. The
// renewal says so. That of the lock beside it looks at its node once.
func TestRenewalAfterReconnect(t *testing.T) {
	t.Parallel()
	at := storeURL(t)
	ctx := ctxFor(t, 40*time.Second)
	var n network
	conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, session,
		zk.WithLogInfo(false), zk.WithLogger(quiet{}), zk.WithDialer(n.dial))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base(at))))
	t.Cleanup(func() { _ = d.Close() })
	var holds []driver.Hold
	for _, name := range []string{"x", "y"} {
		r := request(name, "held-"+name)
		g := must[driver.Grant](t)(d.Acquire(ctx, r))
		holds = append(holds, r.Hold(g.Token))
	}
	node := ticketNode(t, admin(t), at, 0)
	watchedBy(t, node, 1)
	answered(t, conn)

	n.set(true, true)
	for conn.State() == zk.StateHasSession {
		time.Sleep(time.Millisecond)
	}
	if err := admin(t).Delete(node, -1); err != nil {
		t.Fatal(err)
	}
	n.set(false, true)
	for conn.State() != zk.StateHasSession {
		time.Sleep(time.Millisecond)
	}
	errs := d.RenewAll(ctx, []driver.Renewal{{Hold: holds[0], TTL: time.Minute}, {Hold: holds[1], TTL: time.Minute}})
	if !errors.Is(errs[0], driver.ErrLost) {
		t.Errorf("renewal of a ticket that is gone: %v, want ErrLost", errs[0])
	}
	if errs[1] != nil {
		t.Errorf("the ticket beside it: %v", errs[1])
	}
	for !n.hasLost() { // the client sends it in the background
		if ctx.Err() != nil {
			t.Fatal("no request that sets watches was lost: the test tests nothing")
		}
		time.Sleep(time.Millisecond)
	}
	if err := d.Release(ctx, holds[1]); err != nil {
		t.Error(err)
	}
}

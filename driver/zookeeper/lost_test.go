package zookeeper_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// through returns the URL of a store behind a proxy of its own.
func through(t testing.TB) (url string, p *testbed.Proxy, direct string) {
	t.Helper()
	direct = storeURL(t)
	p = testbed.SharedZookeeper(t).Proxy(t)
	return p.URL() + direct[len(testbed.SharedZookeeper(t).URL()):], p, direct
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: locker.DefaultTTL, Renewed: true, Wait: true}
}

// nodes lists the children of a node, without the node of the protocol version,
// which is kept for ever. It lists none if the node is not there.
func nodes(t testing.TB, conn *zk.Conn, path string) []string {
	t.Helper()
	names, _, err := conn.Children(path)
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return n == "%protocol" })
}

// ticketNode returns the path of the node at a position of the queue of x, from 0.
func ticketNode(t testing.TB, conn *zk.Conn, url string, position int) string {
	t.Helper()
	queue := nodes(t, conn, base(url)+"/x")
	if len(queue) <= position {
		t.Fatalf("the queue is %v, want more than %d", queue, position)
	}
	sequence := func(node string) string { return node[strings.LastIndexByte(node, '_'):] }
	slices.SortFunc(queue, func(a, b string) int { return strings.Compare(sequence(a), sequence(b)) })
	return base(url) + "/x/" + queue[position]
}

// TestCreateReplyLost loses the answer to the create: the ticket is found
// again, and is not queued twice, even if it has to wait.
func TestCreateReplyLost(t *testing.T) {
	t.Parallel()
	url, p, direct := through(t)
	ctx := ctxFor(t, 30*time.Second)
	d := open(t, url)
	conn := admin(t)
	warm := request("warm", "warm-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, warm))
	if err := d.Release(ctx, warm.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}

	lost := p.LoseReply("lost-1_x_")
	r := request("x", "lost-1")
	g = must[driver.Grant](t)(d.Acquire(ctx, r))
	<-lost
	names := nodes(t, conn, base(direct)+"/x")
	if len(names) != 1 || !strings.HasSuffix(names[0], "_0000000000") {
		t.Fatalf("nodes %v, want the first that was created, alone", names)
	}
	_, st, err := conn.Exists(base(direct) + "/x/" + names[0])
	if err != nil || uint64(st.Czxid) != g.Token {
		t.Fatalf("token %d of a node created by %d (error %v)", g.Token, st.Czxid, err)
	}

	other := open(t, direct)
	blocked := p.LoseReply("lost-2_x_")
	r2 := request("x", "lost-2")
	joined, granted := make(chan struct{}), make(chan driver.Grant, 1)
	r2.Joined = func() { close(joined) }
	go func() {
		g, err := d.Acquire(ctx, r2)
		if err != nil {
			t.Error(err)
		}
		granted <- g
	}()
	<-blocked
	<-joined
	if names := nodes(t, conn, base(direct)+"/x"); len(names) != 2 {
		t.Fatalf("nodes %v, want two", names)
	}
	if err := other.Release(ctx, r.Hold(0)); err != nil { // by name and ID, from another process
		t.Fatal(err)
	}
	g2 := <-granted
	if g2.Token <= g.Token {
		t.Fatalf("token %d after %d", g2.Token, g.Token)
	}
	if err := d.Release(ctx, r2.Hold(g2.Token)); err != nil {
		t.Fatal(err)
	}
	empty(t, conn, direct)
}

// empty waits until nothing is left below the base.
func empty(t testing.TB, conn *zk.Conn, url string) {
	t.Helper()
	ctx := ctxFor(t, 30*time.Second)
	for {
		n, err := count(conn, base(url))
		if err == nil && n == 0 {
			return
		}
		if ctx.Err() != nil {
			names, _, _ := conn.Children(base(url))
			t.Fatalf("%d nodes are left (error %v): %v", n, err, names)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestLateCreate delays a create on a connection that the client gives up, until the caller has
// given up too and the release is answered. Then the server gets it, of a session that is alive
// on another connection: no ticket is queued any more, not even for a moment (D13).
func TestLateCreate(t *testing.T) {
	t.Parallel()
	t.Run("to the same server", func(t *testing.T) {
		t.Parallel()
		srv := testbed.SharedZookeeper(t)
		createsLate(t, srv.Proxy(t), srv.Addr(), base(storeURL(t)))
	})
	for what, next := range map[string]func(e *testbed.Ensemble) *testbed.Server{
		"to a follower": func(e *testbed.Ensemble) *testbed.Server { return e.Followers()[1] },
		"to the leader": func(e *testbed.Ensemble) *testbed.Server { return e.Leader() },
	} {
		t.Run("when the session is moved "+what, func(t *testing.T) {
			t.Parallel()
			slot(t)
			e := testbed.ZookeeperEnsemble(t)
			createsLate(t, e.Followers()[0].Proxy(t), next(e).Addr(), "/locker")
		})
	}
}

// createsLate connects through a proxy, and then again at another address.
func createsLate(t *testing.T, p *testbed.Proxy, next, base string) {
	ctx := ctxFor(t, 60*time.Second)
	var dials atomic.Int64
	conn, events, err := zk.Connect([]string{next}, 3*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}),
		zk.WithDialer(func(network, address string, timeout time.Duration) (net.Conn, error) {
			if dials.Add(1) == 1 {
				address = p.Addr()
			}
			return net.DialTimeout(network, address, timeout)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events, zookeeper.WithPrefix(base)))
	defer d.Close()
	warm := request("warm", "warm-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, warm))
	if err := d.Release(ctx, warm.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}

	p.Cut()
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	r := request("x", "late-1")
	if _, err := d.Acquire(short, r); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrNoTicket) {
		t.Fatalf("behind a cut: %v", err)
	}
	for { // until the client has another connection
		err := d.Release(ctx, r.Hold(0))
		if errors.Is(err, driver.ErrLost) {
			break
		}
		if err == nil || ctx.Err() != nil {
			t.Fatalf("undo: %v", err)
		}
	}
	look := connect(t, next)
	there, _, changed, err := look.ExistsW(base + "/x")
	if err != nil || there {
		t.Fatalf("the queue is there: %v, %v", there, err)
	}
	before := p.Stats().Requests
	p.Heal()
	select {
	case ev := <-changed:
		t.Errorf("after the release was answered: %v of %s", ev.Type, ev.Path)
	case <-time.After(2 * time.Second):
	}
	t.Logf("the server got %d bytes late", p.Stats().Requests-before)
	if g, err = d.Acquire(ctx, r); err != nil { // the session is alive
		t.Fatal(err)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
}

// TestReleaseReplyLost loses the answer to a release: the release has been done
// once, and is no error.
func TestReleaseReplyLost(t *testing.T) {
	t.Parallel()
	url, p, direct := through(t)
	ctx := ctxFor(t, 30*time.Second)
	c := client(t, url)
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	lost := p.LoseReply("_x_0000000000")
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	<-lost
	empty(t, admin(t), direct)
}

// TestReleaseNotAnswered gives up a release whose request is lost: a repeated
// release succeeds.
func TestReleaseNotAnswered(t *testing.T) {
	t.Parallel()
	url, p, direct := through(t)
	ctx := ctxFor(t, 60*time.Second)
	d := open(t, url)
	r := request("x", "given-up-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	p.Cut()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if err := d.Release(short, r.Hold(g.Token)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrLost) {
		t.Fatalf("release behind a cut: %v", err)
	}
	p.Reset() // discards the request
	p.Heal()
	for err := errors.New("not asked"); err != nil; err = d.Release(ctx, r.Hold(g.Token)) {
		if ctx.Err() != nil || errors.Is(err, driver.ErrLost) {
			t.Fatalf("release asked for again: %v", err)
		}
	}
	if err := d.Release(ctx, r.Hold(g.Token)); !errors.Is(err, driver.ErrLost) {
		t.Fatalf("release of what is gone: %v", err)
	}
	empty(t, admin(t), direct)
}

// TestDeletedByHand deletes the node of a held lock: the holder is notified long
// before it would renew.
func TestDeletedByHand(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	c, conn := client(t, url), admin(t)
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	path := base(url) + "/x/" + nodes(t, conn, base(url)+"/x")[0]
	if err := conn.Delete(path, -1); err != nil {
		t.Fatal(err)
	}
	lostSoon(t, k)
	if !errors.Is(k.Err(), locker.ErrLost) || !errors.Is(k.Release(ctx), locker.ErrLost) {
		t.Fatal(k.Err())
	}
	if err := must[*locker.Lock](t)(c.Acquire(ctx, "x")).Release(ctx); err != nil {
		t.Fatal(err)
	}
	empty(t, conn, url)
}

// TestAskedAgainAfterLostReply: the caller gives up before the driver knows
// whether the create was carried out, and asks again. It gets the ticket that is
// queued, which keeps its position.
func TestAskedAgainAfterLostReply(t *testing.T) {
	t.Parallel()
	url, p, direct := through(t)
	ctx := ctxFor(t, 60*time.Second)
	d, conn := open(t, url), admin(t)
	warm := request("warm", "warm-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, warm))
	if err := d.Release(ctx, warm.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	p.HoldReplies(true)
	short, cancel := context.WithCancel(ctx)
	r := request("x", "again-1")
	given := make(chan error, 1)
	go func() {
		_, err := d.Acquire(short, r)
		given <- err
	}()
	for len(nodes(t, conn, base(direct)+"/x")) == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-given; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	node := nodes(t, conn, base(direct)+"/x")[0]
	p.Heal()
	g = must[driver.Grant](t)(d.Acquire(ctx, r))
	if names := nodes(t, conn, base(direct)+"/x"); len(names) != 1 || names[0] != node {
		t.Fatalf("nodes %v, want %s alone", names, node)
	}
	time.Sleep(2500 * time.Millisecond) // nothing removes it
	if names := nodes(t, conn, base(direct)+"/x"); len(names) != 1 || names[0] != node {
		t.Fatalf("nodes %v after a while, want %s alone", names, node)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	empty(t, conn, direct)
}

// TestWrittenByHand writes into the node of a lock that was granted after a wait:
// the node is watched again, and a deletion after that is reported at once.
func TestWrittenByHand(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	a, b, conn := client(t, url), client(t, url), admin(t)
	held := must[*locker.Lock](t)(a.Acquire(ctx, "x"))
	granted := make(chan *locker.Lock, 1)
	go func() {
		k, err := b.Acquire(ctx, "x", locker.WithTTL(5*time.Second), locker.WithoutRenewal()) // renewals would set the watch, too
		if err != nil {
			t.Error(err)
		}
		granted <- k
	}()
	queueOf(t, a, "x", 2)
	path := ticketNode(t, conn, url, 1)
	watchedBy(t, path, 1)
	if err := held.Release(ctx); err != nil {
		t.Fatal(err)
	}
	k := <-granted
	if _, err := conn.Set(path, []byte("{}"), -1); err != nil {
		t.Fatal(err)
	}
	watchedBy(t, path, 1) // a new watch, since the write has fired the first one
	if err := conn.Delete(path, -1); err != nil {
		t.Fatal(err)
	}
	lostSoon(t, k)
}

// TestQueueDeletedByHand: somebody deletes all nodes of a queue, from its head. None of its
// waiters is granted, and the process of the holder gets a larger token.
func TestQueueDeletedByHand(t *testing.T) {
	t.Parallel()
	at := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	conn := admin(t)
	holder := open(t, at)
	old := must[driver.Grant](t)(holder.Acquire(ctx, request("x", "held-1")))
	ended := make(chan error, 3)
	for _, id := range []string{"waits-1", "waits-2", "waits-3"} {
		d, r, joined := open(t, at), request("x", id), make(chan struct{})
		r.Joined = func() { close(joined) }
		go func() {
			_, err := d.Acquire(ctx, r)
			ended <- err
		}()
		<-joined
	}
	var all []any
	for i := range 4 {
		all = append(all, &zk.DeleteRequest{Path: ticketNode(t, conn, at, i), Version: -1})
	}
	if _, err := conn.Multi(all...); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-ended; !errors.Is(err, driver.ErrLost) {
			t.Errorf("a waiter got %v, want ErrLost", err)
		}
	}
	again := must[driver.Grant](t)(holder.Acquire(ctx, request("x", "held-2")))
	if again.Token <= old.Token {
		t.Errorf("token %d after %d", again.Token, old.Token)
	}
}

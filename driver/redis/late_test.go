package redis_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// delays is a network that holds back one request, and delivers it after its connection was given up. TCP does so
// too: it sends a lost packet again after 200 ms.
type delays struct {
	mu   sync.Mutex
	text []byte // the next request that contains it is held back; nil: none
	held []func() error
}

type delayed struct {
	net.Conn
	of *delays

	mu   sync.Mutex
	held bool
}

// next holds back the next request that contains text.
func (n *delays) next(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text = []byte(text)
}

// deliver delivers the request that was held back. The server has done it then.
func (n *delays) deliver(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.held) != 1 {
		t.Fatalf("%d requests were held back, want one", len(n.held))
	}
	if err := n.held[0](); err != nil {
		t.Fatal(err)
	}
	n.held = nil
}

func (c *delayed) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil || !bytes.Contains(b, n.text) {
		return c.Conn.Write(b)
	}
	n.text, c.held = nil, true
	request := bytes.Clone(b)
	n.held = append(n.held, func() error {
		defer c.Conn.Close()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Conn.Write(request); err != nil {
			return err
		}
		_, err := c.Read(make([]byte, 1000)) // its answer
		return err
	})
	return len(b), nil
}

func (c *delayed) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		return nil
	}
	return c.Conn.Close()
}

func (n *delays) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	return &delayed{Conn: c, of: n}, err
}

// open opens a driver on that network.
func (n *delays) open(t *testing.T, o *goredis.Options) *redis.Driver {
	t.Helper()
	o.ReadTimeout, o.Dialer, o.MaintNotificationsConfig = 500*time.Millisecond, n.dial, quiet
	return openOver(t, goredis.NewClient(o))
}

// openCluster is open for a Cluster.
func (n *delays) openCluster(t *testing.T, o *goredis.ClusterOptions) *redis.Driver {
	t.Helper()
	o.ReadTimeout, o.Dialer, o.MaintNotificationsConfig = 500*time.Millisecond, n.dial, quiet
	return openOver(t, goredis.NewClusterClient(o))
}

// quiet is the setting that clients opened by URL have. With the default go-redis changes the options of a client while it
// connects, and copies them in WithTimeout, without a common lock.
var quiet = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func openOver(t *testing.T, client goredis.UniversalClient) *redis.Driver {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	d, err := redis.New(client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestLateSending: a request that was sent again, and answered, leaves no ticket when its first sending arrives after
// the ticket was released, or refused.
func TestLateSending(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	n := &delays{}
	lateSending(t, n, n.open(t, &goredis.Options{Addr: srv.Addr()}), openAt(t, srv.URL()))
}

// inBatches is a client over which the driver sends all requests in batches. go-redis sends them again.
type inBatches struct{ goredis.UniversalClient }

// TestLateSendingByTheClient: the same if it was not the driver but go-redis that sent the request again.
func TestLateSendingByTheClient(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	n := &delays{}
	client := goredis.NewClient(&goredis.Options{Addr: srv.Addr(), ReadTimeout: 500 * time.Millisecond, Dialer: n.dial, MaintNotificationsConfig: quiet})
	t.Cleanup(func() { _ = client.Close() })
	lateSending(t, n, openOver(t, inBatches{client}), openOver(t, inBatches{dial(t, srv.Addr())}))
}

// TestLateSendingCluster: the same in a Cluster.
func TestLateSendingCluster(t *testing.T) {
	t.Parallel()
	cluster := testbed.RedisCluster(t)
	n := &delays{}
	lateSending(t, n, n.openCluster(t, &goredis.ClusterOptions{Addrs: cluster.Addrs()}), openAt(t, cluster.URL()))
}

func lateSending(t *testing.T, n *delays, d, other *redis.Driver) {
	t.Helper()
	if err := d.Ping(t.Context()); err != nil { // now it listens
		t.Fatal(err)
	}
	free := func(what, name string) {
		t.Helper()
		n.deliver(t)
		q, err := other.Inspect(t.Context(), name)
		if err != nil || len(q) != 0 {
			t.Errorf("%s: the queue is %+v, %v", what, q, err)
		}
	}

	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	n.next(r.ID)
	if _, err := d.Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Error(err)
	}
	free("granted", r.Name)

	holder := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	r = driver.Request{Name: holder.Name, ID: newName(), TTL: time.Minute}
	n.next(r.ID)
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("refused: %v", err)
	}
	if err := other.Release(t.Context(), holder.Hold(0)); err != nil {
		t.Error(err)
	}
	free("refused", r.Name)

	holder.ID = newName()
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	r = driver.Request{Name: holder.Name, ID: newName(), TTL: time.Minute, Wait: true}
	ctx, cancel := context.WithCancel(t.Context())
	r.Joined = cancel
	n.next(r.ID)
	if _, err := d.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Error(err)
	}
	if err := other.Release(t.Context(), holder.Hold(0)); err != nil {
		t.Error(err)
	}
	free("given up", r.Name)
}

// TestLateSendingUnsubscribed: an Acquire that cannot wait, for want of a subscription, has asked for a grant before.
// If another sending of that request may still arrive, there may be a ticket.
func TestLateSendingUnsubscribed(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	err := dial(t, srv.Addr()).Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-subscribe").Err()
	if err != nil {
		t.Fatal(err)
	}
	n := &delays{}
	d := n.open(t, &goredis.Options{Addr: srv.Addr(), Username: "deaf", Password: "secret"})
	holder := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	r := driver.Request{Name: holder.Name, ID: newName(), TTL: time.Minute, Wait: true}
	n.next(r.ID)
	ctx, cancel := context.WithCancel(t.Context())
	r.Joined = cancel
	if _, err := d.Acquire(ctx, r); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("without a subscription: %v", err)
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Errorf("release: %v", err)
	}
	if err := d.Release(t.Context(), holder.Hold(0)); err != nil {
		t.Error(err)
	}
	n.deliver(t)
	if q, err := d.Inspect(t.Context(), r.Name); err != nil || len(q) != 0 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
}

// behind returns a driver whose requests can be late, another one, what that holds, and a request of the first that waits for it.
func (n *delays) behind(t *testing.T, srv *testbed.Server) (d, other *redis.Driver, holder, r driver.Request) {
	t.Helper()
	d = n.open(t, &goredis.Options{Addr: srv.Addr()})
	if err := d.Ping(t.Context()); err != nil { // now it listens
		t.Fatal(err)
	}
	other = openAt(t, srv.URL())
	holder = driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	return d, other, holder, driver.Request{Name: holder.Name, ID: newName(), TTL: time.Minute, Wait: true}
}

// TestLateSendingsAddUp: a ticket was asked for twice, and a sending of each request arrives after the release.
func TestLateSendingsAddUp(t *testing.T) {
	t.Parallel()
	n := &delays{}
	d, other, holder, r := n.behind(t, testbed.SharedRedis(t))
	for range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		r.Joined = cancel
		n.next(r.ID)
		if _, err := d.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Error(err)
	}
	if err := other.Release(t.Context(), holder.Hold(0)); err != nil {
		t.Error(err)
	}
	n.mu.Lock()
	late := n.held
	n.held = nil
	n.mu.Unlock()
	if len(late) != 2 {
		t.Fatalf("%d requests were held back, want two", len(late))
	}
	for _, deliver := range late {
		if err := deliver(); err != nil {
			t.Fatal(err)
		}
	}
	if q, err := other.Inspect(t.Context(), r.Name); err != nil || len(q) != 0 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
}

// TestLateSendingAfterALoss: a wait whose ticket was broken says that there is no ticket, and a sending of its request arrives after that.
func TestLateSendingAfterALoss(t *testing.T) {
	t.Parallel()
	n := &delays{}
	d, other, _, r := n.behind(t, testbed.Redis(t))
	r.Joined = func() {
		q, err := other.Inspect(t.Context(), r.Name)
		if err != nil || len(q) != 2 {
			t.Errorf("the queue is %+v, %v", q, err)
			return
		}
		if err := other.Break(t.Context(), r.Name, q[1].Token); err != nil {
			t.Error(err)
		}
	}
	n.next(r.ID)
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrLost) {
		t.Fatal(err)
	}
	n.deliver(t)
	if q, err := other.Inspect(t.Context(), r.Name); err != nil || len(q) != 1 {
		t.Errorf("the queue is %+v, %v", q, err)
	}
}

// TestLateSendingThenRefused: a request was not answered, and the server refuses the connection on which it is to be
// sent again. The refusal is no answer to the request, which may still arrive and take a ticket.
func TestLateSendingThenRefused(t *testing.T) {
	for name, change := range map[string][]any{
		"password": {"resetpass", ">another"},
		"right":    {"-select"}, // which a new connection to a database other than 0 needs
	} {
		for how, over := range map[string]func(*goredis.Client) goredis.UniversalClient{
			"by the driver": func(c *goredis.Client) goredis.UniversalClient { return c },
			"by the client": func(c *goredis.Client) goredis.UniversalClient { return inBatches{c} },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				lateSendingThenRefused(t, change, over)
			})
		}
	}
}

func lateSendingThenRefused(t *testing.T, change []any, over func(*goredis.Client) goredis.UniversalClient) {
	srv := testbed.Redis(t)
	admin := dial(t, srv.Addr())
	set := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "u"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("on", ">secret", "~*", "&*", "+@all")
	n := &delays{}
	client := goredis.NewClient(&goredis.Options{
		Addr: srv.Addr(), DB: 1, Username: "u", Password: "secret", PoolSize: 1, ReadTimeout: 500 * time.Millisecond, Dialer: n.dial,
		MaintNotificationsConfig: quiet,
	})
	t.Cleanup(func() { _ = client.Close() })
	d := openOver(t, over(client))
	for range 3 { // it has a connection, and the server answers quickly
		r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
		if _, err := d.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := d.Release(t.Context(), r.Hold(0)); err != nil {
			t.Fatal(err)
		}
	}
	set(change...)
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	n.next(r.ID)
	if _, err := d.Acquire(t.Context(), r); err == nil || errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("acquire: %v", err)
	}
	n.deliver(t)
	// The server has changed nothing else, so the ticket is there until it is released.
	set("resetpass", ">secret", "+select")
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Errorf("release: %v", err)
	}
}

// TestHeartbeatIsLost: a waiter keeps its place if one heartbeat of its process is lost, however long the client waits for the answer.
func TestHeartbeatIsLost(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	n := &delays{}
	client := goredis.NewClient(&goredis.Options{Addr: srv.Addr(), Dialer: n.dial, MaintNotificationsConfig: quiet})
	d, other := openOver(t, inBatches{client}), openAt(t, srv.URL())
	holder := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	r := driver.Request{Name: holder.Name, ID: newName(), TTL: time.Minute, Wait: true}
	r.Joined = func() { n.next("x" + r.ID) }
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := d.Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a waiter: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.held) != 1 {
		t.Errorf("%d heartbeats were lost, want one", len(n.held))
	}
	for _, h := range []driver.Hold{holder.Hold(0), r.Hold(0)} {
		if err := other.Release(context.Background(), h); err != nil {
			t.Error(err)
		}
	}
}

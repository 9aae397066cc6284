package zookeeper_test

import (
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/rights"
)

// own makes a driver on a user's connection.
func own(t testing.TB, timeout time.Duration, opts ...zookeeper.Option) (*zk.Conn, *zookeeper.Driver) {
	t.Helper()
	conn, events, err := zk.Connect([]string{testbed.SharedZookeeper(t).Addr()}, timeout, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	d, err := zookeeper.New(conn, events, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(); conn.Close() })
	return conn, d
}

// TestOwnConnection gives the driver a connection: the driver does not close it, and
// forwards its events. The end of the connection ends all locks, and is reported at
// once.
func TestOwnConnection(t *testing.T) {
	t.Parallel()
	prefix := base(storeURL(t))
	ctx := ctxFor(t, 30*time.Second)
	events := make(chan zk.Event, 100)
	conn, d := own(t, session, nil, zookeeper.WithPrefix(prefix), zookeeper.WithEvents(func(ev zk.Event) { events <- ev }))
	c := locker.New(d)
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	for ev := range events {
		if ev.State == zk.StateHasSession {
			break
		}
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if ok, _, err := conn.Exists("/"); err != nil || !ok {
		t.Fatalf("the user's connection after Close: %v", err)
	}

	conn, d = own(t, session, zookeeper.WithPrefix(prefix))
	c = locker.New(d)
	defer c.Close()
	k = must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	w := make(chan error, 1)
	go func() {
		_, err := c.Acquire(ctx, "x")
		w <- err
	}()
	queueOf(t, c, "x", 2)
	took := testbed.Elapsed(func() {
		conn.Close()
		<-k.Done()
	})
	if took > time.Second || !errors.Is(k.Err(), locker.ErrLost) {
		t.Fatalf("notified of the end of the connection after %v: %v", took, k.Err())
	}
	if err := <-w; err == nil {
		t.Fatal("a waiter was granted on a closed connection")
	}
}

// TestEndIsTold: the holder is notified of the end of the session without a renewal.
func TestEndIsTold(t *testing.T) {
	t.Parallel()
	conn, d := own(t, session, zookeeper.WithPrefix(base(storeURL(t))))
	notified := make(chan error, 1)
	d.NotifyLoss(func(h driver.Hold, cause error) {
		if h.ID == "ended-1" {
			notified <- cause
		}
	})
	must[driver.Grant](t)(d.Acquire(ctxFor(t, 30*time.Second), request("x", "ended-1")))
	conn.Close()
	select {
	case cause := <-notified:
		if !errors.Is(cause, driver.ErrLost) || !errors.Is(cause, zk.ErrSessionExpired) {
			t.Errorf("the cause is %v", cause)
		}
	case <-time.After(5 * time.Second):
		t.Error("the end of the connection was not reported")
	}
}

// TestNegotiated asks for a session that the server does not give: the lease is that
// of the session that it gives.
func TestNegotiated(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, 30*time.Second)
	_, d := own(t, time.Minute, zookeeper.WithPrefix(base(storeURL(t))))
	r := request("x", "negotiated-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	// The testbed's longest session is 10 s: less a third, and half a tick of 2 s.
	if want := 9*time.Second - 10*time.Second/3; g.TTL != want {
		t.Errorf("lease %v, want %v", g.TTL, want)
	}
	if b := d.Bounds(0); b.Crash != 18500*time.Millisecond {
		t.Errorf("crash bound %v", b.Crash)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	_, d = own(t, 3*time.Second, zookeeper.WithPrefix(base(storeURL(t))))
	g = must[driver.Grant](t)(d.Acquire(ctx, r))
	if want := 1250 * time.Millisecond; g.TTL != want { // less a third and a quarter
		t.Errorf("lease %v, want %v", g.TTL, want)
	}
}

// TestLongFixedLease holds a fixed lease that is longer than the session: the lease
// lasts, since the session is kept alive, and its loss is reported before the session
// can have ended.
func TestLongFixedLease(t *testing.T) {
	t.Parallel()
	url, p, direct := through(t)
	// The lease is more than four seconds of it: a machine that stands still for two loses nothing.
	url = strings.Replace(url, "session="+session.String(), "session=8s", 1)
	ctx := ctxFor(t, time.Minute)
	c := client(t, url)
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x", locker.WithTTL(20*time.Second), locker.WithoutRenewal()))
	next := make(chan time.Time, 1)
	other := client(t, direct)
	go func() {
		k, err := other.Acquire(ctx, "x")
		if err != nil {
			t.Error(err)
		}
		next <- time.Now()
		if err == nil {
			_ = k.Release(ctx)
		}
	}()
	queueOf(t, other, "x", 2)
	select {
	case <-k.Done():
		t.Fatal("a fixed lease of 20 s did not outlive a session of 8 s that was kept alive")
	case <-time.After(10 * time.Second):
	}
	p.Cut()
	<-k.Done()
	notified := time.Now()
	if !errors.Is(k.Err(), locker.ErrLost) {
		t.Fatal(k.Err())
	}
	if at := <-next; at.Before(notified) {
		t.Fatalf("the next was granted %v before the loss was notified", notified.Sub(at))
	}
	p.Heal()
	empty(t, admin(t), direct)
}

// TestAuth opens by URL with a user: the nodes below the chroot are open to that user
// alone, and no error shows the password.
func TestAuth(t *testing.T) {
	t.Parallel()
	ctx := ctxFor(t, 30*time.Second)
	at := storeURL(t)
	secret := "s3cret:pass"
	with := func(user string) string { return strings.Replace(at, "://", "://"+user+"@", 1) }
	u := strings.ReplaceAll(with("ann:"+strings.ReplaceAll(secret, ":", "%3A")), " ", "")
	ann := client(t, u)
	k := must[*locker.Lock](t)(ann.Acquire(ctx, "x"))
	again := client(t, u)
	if _, err := again.TryAcquire(ctx, "x"); !errors.Is(err, locker.ErrNotAcquired) {
		t.Fatalf("the same user: %v", err)
	}
	for _, url := range []string{at, with("bob:other")} {
		_, err := client(t, url).Acquire(ctx, "x")
		if !errors.Is(err, zk.ErrNoAuth) || strings.Contains(err.Error(), "s3cret") {
			t.Fatalf("another user: %v", err)
		}
	}
	rights.PingRefused(t, with("bob:other"), "the ACL of "+base(at), "s3cret")
	conn, root := admin(t), "/readable-"+rand.Text()
	if _, err := conn.Create(root, []byte{}, 0, zk.WorldACL(zk.PermRead)); err != nil {
		t.Fatal(err)
	}
	readable := testbed.SharedZookeeper(t).URL() + "?prefix=" + root[1:]
	rights.PingRefused(t, readable, "create, write and delete")
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := client(t, with("ann")+"&password_file="+file).Ping(ctx); err != nil {
		t.Errorf("with the password in a file: %v", err)
	}
	acl, _, err := admin(t).GetACL(base(at))
	if err == nil && (len(acl) != 1 || acl[0].Scheme != "digest" || !strings.HasPrefix(acl[0].ID, "ann:")) {
		t.Fatalf("ACL %v", acl)
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

func TestURLs(t *testing.T) {
	for raw, want := range map[string]string{
		"zookeeper://":                           "no host",
		"zookeeper://h?session=0":                "session",
		"zookeeper://h?session=48h":              "24h",
		"zookeeper://h?prefix=/":                 "prefix",
		"zookeeper://h?prefix=..":                "prefix",
		"zookeeper://h?nonsense=1":               "known: ca, cert, dial_timeout, insecure_skip_verify, key, password_file, prefix, server_name, session, tls",
		"zookeeper://h?ca=/not/there":            "tls=true",
		"zookeepers://h?tls=false":               "tls=false",
		"zookeeper://h?dial_timeout=soon":        "dial_timeout",
		"zookeeper://u:pw0rd@h?password_file=/x": "password_file",
		"zookeepers://h?ca=/not/there":           "ca: ",
		"zookeepers://h?cert=/not/there":         "cert and key",
		"zookeeper://h/a/../b":                   "..",
		"zookeeper://h/a%00b":                    "refuses",
		"zookeeper://h/zookeeper?prefix=quota":   "own",
		"zookeeper://:pw0rd@h":                   "user",
		"zookeeper://u:pw0rd@h?session=nonsense": "session",
	} {
		u, err := driver.ParseURL(raw)
		if err != nil {
			t.Fatal(err)
		}
		d, err := driver.Open(t.Context(), u)
		if err == nil {
			_ = d.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pw0rd") {
			t.Errorf("%s: %v, want %q in it", raw, err, want)
		}
	}
	d := open(t, "zookeeper://u:pw0rd@127.0.0.1,[::1]:2182/a//b/?prefix=p")
	if s := d.(*zookeeper.Driver).String(); s != "zookeeper 127.0.0.1:2181,[::1]:2182/a/b/p" {
		t.Error(s)
	}
	if _, err := zookeeper.Open(t.Context(), "zookeeper://h", zookeeper.WithEvents(func(zk.Event) {})); err == nil {
		t.Error("Open took WithEvents")
	}
	if _, err := zookeeper.New(nil, nil); err == nil {
		t.Error("New took no connection")
	}
	if _, err := zookeeper.New(new(zk.Conn), nil); err == nil || !strings.Contains(err.Error(), "events") {
		t.Errorf("New without events: %v", err)
	}
}

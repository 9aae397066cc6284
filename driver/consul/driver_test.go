package consul_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// An operator destroys the session: all its locks are lost, and their holders notified.
func TestSessionDestroyed(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	d, _ := counted(t, srv.Addr())
	l := newLocker(t, d)
	k := acquire(t, l, t.Name())
	other := newLocker(t, first(counted(t, srv.Addr())))
	waits := acquire(t, other, t.Name()+"/other")
	admin := newClient(t, srv.Addr())
	session := sessionOf(t, admin, t.Name())
	awaitLossWatch(t, admin, session)
	rejoined := make(chan *locker.Lock, 1)
	go func() { rejoined <- acquire(t, l, t.Name()+"/other") }()
	awaitQueue(t, other, t.Name()+"/other", 2)
	destroy(t, admin, session)
	begun := time.Now()
	select {
	case <-k.Done():
	case <-time.After(2 * time.Second):
		t.Fatal("the loss was not reported")
	}
	if err := k.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Err: %v, want ErrLost", err)
	}
	t.Logf("notified after %v", time.Since(begun))
	release(t, waits)
	release(t, <-rejoined) // in a new session
	release(t, acquire(t, l, t.Name()))
}

// An operator deletes the key by hand: the next renewal finds out.
func TestKeyDeleted(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	l := newLocker(t, first(counted(t, srv.Addr())))
	k := acquire(t, l, t.Name(), locker.WithTTL(10*time.Second))
	admin := newClient(t, srv.Addr())
	for _, kv := range keysOf(t, admin, t.Name()) {
		if _, err := admin.KV().Delete(kv.Key, nil); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-k.Done():
	case <-time.After(10*time.Second/3 + time.Second):
		t.Fatal("the loss was not seen at the renewal")
	}
}

// After a crash the next grant is within the stated bound, with Consul's own minimum TTL.
func TestCrashBound(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	p := srv.Proxy(t)
	d, err := open(t.Context(), "consul://"+p.Addr()+"?prefix="+prefixOf(t))
	if err != nil {
		t.Fatal(err)
	}
	crashed := newLocker(t, d)
	defer crashed.Close()
	defer p.Heal()
	acquire(t, crashed, t.Name(), locker.WithTTL(10*time.Second))
	p.Cut()
	begun := time.Now()
	l := newLocker(t, first(counted(t, srv.Addr())))
	var k *locker.Lock
	measured := srv.Elapsed(func() { k = acquire(t, l, t.Name()) })
	took := time.Since(begun)
	release(t, k)
	t.Logf("the next was granted %v after the crash", took)
	if measured > 21*time.Second || took < 10*time.Second {
		t.Errorf("the next was granted %v after the crash, want at least 10 s and at most 21 s", took)
	}
}

// An extension, however long, leaves the ticket on its session, which the core renews.
func TestExtendKeepsSession(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	l := newLocker(t, first(counted(t, srv.Addr())))
	admin := newClient(t, srv.Addr())
	k := acquire(t, l, t.Name(), locker.WithTTL(10*time.Second))
	before := sessionOf(t, admin, t.Name())
	for _, ttl := range []time.Duration{time.Hour, 25 * time.Hour} {
		if err := k.Extend(t.Context(), ttl); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(k.Deadline()); left > 10*time.Second {
			t.Errorf("trusted for %v, and the session lasts 10s", left)
		}
	}
	if after := sessionOf(t, admin, t.Name()); after != before {
		t.Errorf("the ticket was moved from %s to %s", before, after)
	}
	release(t, k)
}

// Nothing is left after Close, whatever the state of the locks.
func TestCloseLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	l := newLocker(t, first(counted(t, srv.Addr())))
	admin := newClient(t, srv.Addr())
	acquire(t, l, "a")
	awaitLossWatch(t, admin, sessionOf(t, admin, "a"))
	acquire(t, l, "b", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	done := make(chan error, 1)
	go func() { _, err := l.Acquire(t.Context(), "a"); done <- err }()
	awaitQueue(t, l, "a", 2)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, locker.ErrClosed) {
		t.Errorf("a waiting Acquire: %v, want ErrClosed", err)
	}
	keys, _, err := admin.KV().Keys(prefixOf(t)+"/", "", &api.QueryOptions{RequireConsistent: true})
	if err != nil || len(keys) > 1 { // the protocol version stays
		t.Errorf("keys left: %v, %v", keys, err)
	}
	sessions, _, err := admin.Session().List(&api.QueryOptions{RequireConsistent: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sessions {
		if strings.HasPrefix(s.Name, prefixOf(t)) {
			t.Errorf("session left: %+v", s)
		}
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	if _, err := consul.New(nil); err == nil {
		t.Error("New(nil) was accepted")
	}
	for url, part := range map[string]string{
		"consul://a:1,b:2":                 "2 hosts",
		"consul://a/x":                     "path",
		"consul://secret@a":                "token",
		"consul://:secret@a?token=secret2": "two tokens",
		"consul://a?ca=/x":                 "tls=true",
		"consuls://a?cert=/x":              "key",
		"consul://a?prefix=/a":             "prefix",
		"consul://a?prefix=a%20b":          "prefix",
		"consul://a?min_ttl=48h":           "48h",
		"consul://a?wait=20m":              "20m",
		"consul://a?wait=500ms":            "500ms",
		"consul://a?server_name=b":         "server_name",
		"consul://a?nonsense=1":            "nonsense",
	} {
		_, err := open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want an error that names %q and no token", url, err, part)
		}
	}
	d, err := open(t.Context(), "consul://:secret@127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if s := fmt.Sprint(d); s != "consul 127.0.0.1:8500" {
		t.Errorf("String: %q", s)
	}
	_, err = d.Acquire(t.Context(), driver.Request{Name: "x", ID: "1", TTL: 25 * time.Hour})
	if !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a TTL of 25 h: %v, want ErrUnsupported", err)
	}
}

// The core ends a lease that is shorter than Consul's shortest session. Such a lease
// also works on a session that was renewed a while ago.
func TestShortLease(t *testing.T) {
	l := newLocker(t, first(counted(t, testbed.SharedConsul(t).Addr())), locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventRejoined && e.Elapsed < 250*time.Millisecond { // else the answer came late
			t.Errorf("joined again after %v: %v", e.Elapsed, e.Err)
		}
	}))
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(300 * time.Millisecond) {
		release(t, acquire(t, l, t.Name(), locker.WithTTL(500*time.Millisecond)))
	}
	begun := time.Now()
	k := acquire(t, l, t.Name(), locker.WithTTL(500*time.Millisecond), locker.WithoutRenewal())
	var next *locker.Lock
	measured := testbed.Elapsed(func() { next = acquire(t, l, t.Name()) })
	if took := time.Since(begun); took < 400*time.Millisecond || measured > 1500*time.Millisecond {
		t.Errorf("a fixed lease of 500 ms ended after %v", took)
	}
	if err := k.Err(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Err: %v, want ErrLost", err)
	}
	release(t, next)
}

// Settings that the URL does not have come from the environment.
func TestEnvironment(t *testing.T) {
	srv := testbed.SharedConsul(t)
	t.Setenv("CONSUL_HTTP_ADDR", "http://"+srv.Addr())
	d, err := open(t.Context(), "consul://?prefix=environment")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if name := fmt.Sprint(d); !strings.Contains(name, srv.Addr()) {
		t.Errorf("the driver calls itself %s", name)
	}
	if _, err := d.Inspect(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	t.Setenv("CONSUL_HTTP_ADDR", "127.0.0.1:1")
	there, err := open(t.Context(), srv.URL()+"?prefix=environment")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = there.Close() })
	if _, err := there.Inspect(t.Context(), "a"); err != nil {
		t.Errorf("a URL with a host: %v", err)
	}
}

// When many locks are released together, exactly those that were lost get ErrLost. The
// driver is asked itself: a Locker that has had to repeat a release takes that for done.
func TestReleaseTogether(t *testing.T) {
	t.Parallel()
	const names = 40
	srv := testbed.SharedConsul(t)
	client := newClient(t, srv.Addr())
	d := first(counted(t, srv.Addr()))
	for range 5 {
		held := make([]driver.Hold, names)
		var group sync.WaitGroup
		for i := range held {
			r := request(fmt.Sprintf("%s/%d", t.Name(), i))
			r.Wait = true
			group.Go(func() {
				g, err := d.Acquire(t.Context(), r)
				if err != nil {
					t.Error(err)
				}
				held[i] = r.Hold(g.Token)
			})
		}
		group.Wait()
		for i := 0; i < names; i += 7 {
			kv := keysOf(t, client, held[i].Name)[0]
			if _, err := client.KV().Delete(kv.Key, &api.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for i, h := range held {
			group.Go(func() {
				err := d.Release(t.Context(), h)
				if lost := i%7 == 0; lost != errors.Is(err, driver.ErrLost) || !lost && err != nil {
					t.Errorf("release of lock %d: %v", i, err)
				}
			})
		}
		group.Wait()
	}
}

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

func randomPrefix() string { return fmt.Sprintf("t%016x", rand.Uint64()) }

// newClient makes an etcd client that is closed with the test.
func newClient(t *testing.T, addr string) *clientv3.Client {
	t.Helper()
	var c requests
	return c.client(t, addr)
}

// newDriver makes a driver that is closed with the test.
func newDriver(t *testing.T, client *clientv3.Client, opts ...etcd.Option) *etcd.Driver {
	t.Helper()
	d, err := etcd.New(client, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// newLocker makes a Locker that is closed with the test, and its driver with it.
func newLocker(t *testing.T, d driver.Driver) *locker.Client {
	t.Helper()
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func request(name, id string, ttl time.Duration) driver.Request {
	return driver.Request{Name: name, ID: id, Owner: "me", TTL: ttl, Renewed: true, Wait: true}
}

func acquire(t *testing.T, d driver.Driver, r driver.Request) driver.Hold {
	t.Helper()
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatalf("acquire %q: %v", r.Name, err)
	}
	return r.Hold(g.Token)
}

func release(t *testing.T, d driver.Driver, h driver.Hold) {
	t.Helper()
	if err := d.Release(t.Context(), h); err != nil {
		t.Fatalf("release %q: %v", h.Name, err)
	}
}

// count returns the number of keys under a prefix.
func count(t *testing.T, c *clientv3.Client, prefix string) int {
	t.Helper()
	resp, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	return int(resp.Count)
}

// Two Lockers on one client, and two goroutines of one Locker, exclude each
// other, which two mutexes on one session of the client's own do not.
func TestOneClientManyLockers(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	client := newClient(t, srv.Addr())
	prefix := etcd.WithPrefix(randomPrefix())
	ls := []*locker.Client{newLocker(t, newDriver(t, client, prefix)), newLocker(t, newDriver(t, client, prefix))}
	var (
		wg  sync.WaitGroup
		reg register
	)
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				k, err := ls[i%2].Acquire(t.Context(), "one")
				if err != nil {
					t.Error(err)
					return
				}
				reg.enter(t, k)
				reg.leave()
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// A refused try writes nothing: not even a ticket that is taken back.
func TestRefusedTryWritesNothing(t *testing.T) {
	srv := testbed.Etcd(t, testbed.Faults()) // nobody else writes
	client := newClient(t, srv.Addr())
	l := newLocker(t, newDriver(t, client))
	hold := func(name string, opts ...locker.Option) {
		t.Helper()
		if _, err := l.Acquire(t.Context(), name, opts...); err != nil {
			t.Fatal(err)
		}
	}
	hold("x")
	hold("s", locker.Shared())
	hold("l", locker.Limit(2))
	hold("l", locker.Limit(2))
	revision := func() int64 {
		resp, err := client.Get(t.Context(), "none")
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	before := revision()
	for name, opts := range map[string][]locker.Option{
		"x": {}, "s": {}, "l": {locker.Limit(2)},
	} {
		if _, err := l.TryAcquire(t.Context(), name, opts...); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("try %q: %v, want ErrNotAcquired", name, err)
		}
	}
	if _, err := l.TryAcquire(t.Context(), "x", locker.Shared()); !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("try to read: %v, want ErrNotAcquired", err)
	}
	if after := revision(); after != before {
		t.Errorf("refused tries wrote %d times", after-before)
	}
	if _, err := l.TryAcquire(t.Context(), "s", locker.Shared()); err != nil {
		t.Errorf("try to read along: %v", err)
	}
}

// Permits that are tried for all at once are given out exactly.
func TestTriedPermits(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	prefix := etcd.WithPrefix(randomPrefix())
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		held int
	)
	for range 12 {
		l := newLocker(t, newDriver(t, newClient(t, srv.Addr()), prefix))
		wg.Go(func() {
			_, err := l.TryAcquire(t.Context(), "permits", locker.Limit(5))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				held++
			case !errors.Is(err, locker.ErrNotAcquired):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if held != 5 {
		t.Errorf("%d of 5 permits were given out to 12 who tried", held)
	}
}

// A guarded write of a holder that has lost its lock is never committed.
func TestGuard(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	client := newClient(t, srv.Addr())
	d := newDriver(t, client, etcd.WithPrefix(randomPrefix()))
	l := newLocker(t, d)
	key := randomPrefix()
	write := func(guard clientv3.Cmp, value string) bool {
		t.Helper()
		resp, err := client.Txn(t.Context()).If(guard).Then(clientv3.OpPut(key, value)).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return resp.Succeeded
	}
	k, err := l.Acquire(t.Context(), "guarded/name")
	if err != nil {
		t.Fatal(err)
	}
	guard := d.Guard(k)
	if !write(guard, "mine") {
		t.Error("the holder's write was refused")
	}
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, err := l.Acquire(t.Context(), "guarded/name")
	if err != nil {
		t.Fatal(err)
	}
	if write(guard, "late") {
		t.Error("a write with the guard of a released lock was committed")
	}
	if write(d.Guard(k), "later") {
		t.Error("a write with the guard of a lock that is known to be released was committed")
	}
	if !write(d.Guard(next), "next") {
		t.Error("the next holder's write was refused")
	}
}

// All locks of one TTL share a lease, which many locks are renewed with in two
// requests.
func TestRenewalsAreBatched(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	var c requests
	d := newDriver(t, c.client(t, srv.Addr()), etcd.WithPrefix(randomPrefix()), etcd.WithoutLossWatch())
	for _, n := range []int{10, 1000} {
		rs := make([]driver.Renewal, n)
		each(n, func(i int) {
			r := request(fmt.Sprint("name-", i), fmt.Sprint("id-", n, "-", i), 30*time.Second)
			g, err := d.Acquire(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			rs[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL}
		})
		gone := rs[n/2].Hold
		if err := d.Break(t.Context(), gone.Name, gone.Token); err != nil {
			t.Fatal(err)
		}
		before := c.unary.Load() + c.streams.Load()
		for i, err := range d.RenewAll(t.Context(), rs) {
			if want := i == n/2; errors.Is(err, driver.ErrLost) != want || !want && err != nil {
				t.Errorf("renewal %d of %d: %v", i, n, err)
			}
		}
		if took := c.unary.Load() + c.streams.Load() - before; took != 2 {
			t.Errorf("%d renewals took %d requests, want 2", n, took)
		}
		each(n, func(i int) {
			if i != n/2 {
				release(t, d, rs[i].Hold)
			}
		})
	}
}

func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	wg.Wait()
}

// When the shared lease is gone all of its holders and waiters are told at once.
func TestLeaseRevokedByHand(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	client := newClient(t, srv.Addr())
	prefix := randomPrefix()
	told := make(chan driver.Hold, 10)
	d := newDriver(t, client, etcd.WithPrefix(prefix))
	d.NotifyLoss(func(h driver.Hold, err error) {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("told of %v", err)
		}
		told <- h
	})
	hs := map[string]driver.Hold{}
	for i := range 3 {
		h := acquire(t, d, request(fmt.Sprint("held-", i), fmt.Sprint("id-", i), time.Minute))
		hs[h.ID] = h
	}
	joined, ended := make(chan struct{}), make(chan error, 1)
	waiter := request("held-0", "id-w", time.Minute)
	waiter.Joined = func() { close(joined) }
	go func() {
		_, err := d.Acquire(t.Context(), waiter)
		ended <- err
	}()
	<-joined
	resp, err := client.Get(t.Context(), prefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range resp.Kvs {
		if kv.Lease != resp.Kvs[0].Lease {
			t.Errorf("tickets of one TTL are on leases %x and %x", kv.Lease, resp.Kvs[0].Lease)
		}
	}
	begun := time.Now()
	if _, err := client.Revoke(t.Context(), clientv3.LeaseID(resp.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, driver.ErrLost) {
		t.Errorf("the waiter got %v, want ErrLost", err)
	}
	for range 3 {
		h := <-told
		if h != hs[h.ID] {
			t.Errorf("told of %+v, want %+v", h, hs[h.ID])
		}
		delete(hs, h.ID)
	}
	t.Logf("told after %v", time.Since(begun).Round(time.Millisecond))
	h := acquire(t, d, request("held-0", "id-after", time.Minute))
	release(t, d, h)
}

// Compaction takes the past from under a watch: the waiter does not notice.
func TestCompactionWhileWaiting(t *testing.T) {
	srv := testbed.Etcd(t, testbed.Faults())
	client := newClient(t, srv.Addr())
	proxy := srv.Proxy(t)
	a, b := newDriver(t, client), newDriver(t, newClient(t, proxy.Addr()))
	h := acquire(t, a, request("compacted", "id-a", 30*time.Second))
	joined, ended := make(chan struct{}), make(chan error, 1)
	r := request("compacted", "id-b", 30*time.Second)
	r.Joined = func() { close(joined) }
	go func() {
		_, err := b.Acquire(t.Context(), r)
		ended <- err
	}()
	<-joined
	time.Sleep(100 * time.Millisecond) // for the watch to stand, most likely; the test is right without
	proxy.Refuse()
	release(t, a, h)
	var rev int64
	for range 20 {
		resp, err := client.Put(t.Context(), "other", "x")
		if err != nil {
			t.Fatal(err)
		}
		rev = resp.Header.Revision
	}
	if _, err := client.Compact(t.Context(), rev); err != nil {
		t.Fatal(err)
	}
	proxy.Heal()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the waiter got %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the waiter was not woken after its watch was compacted away")
	}
}

// A release whose answer is lost for good does not leave the lock held for as long as
// other locks keep the shared lease alive.
func TestUnansweredReleaseIsMadeGood(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	proxy := srv.Proxy(t)
	prefix := randomPrefix()
	d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(prefix))
	other := acquire(t, d, request("other", "id-other", 30*time.Second))
	h := acquire(t, d, request("stuck", "id-stuck", 30*time.Second))
	proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := d.Release(ctx, h); err == nil || errors.Is(err, driver.ErrLost) {
		t.Fatalf("release while cut off: %v", err)
	}
	proxy.Reset() // what was sent is gone
	proxy.Heal()
	waitFor(t, 10*time.Second, "renewal of the other lock", func() bool {
		return d.Renew(t.Context(), other, 30*time.Second) == nil
	})
	if n := count(t, newClient(t, srv.Addr()), prefix+"/stuck"); n != 0 {
		t.Error("the ticket stands in line after its release was lost and its lease renewed")
	}
	release(t, d, other)
}

// A ticket whose put was never answered is gone at the latest with its lease,
// though the lease is shared with a lock that is held on.
func TestUnansweredPutIsMadeGood(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	proxy := srv.Proxy(t)
	prefix := randomPrefix()
	direct := newClient(t, srv.Addr())
	d := newDriver(t, newClient(t, proxy.Addr()), etcd.WithPrefix(prefix))
	other := acquire(t, d, request("other", "id-other", 30*time.Second))
	lost := proxy.LoseReply("id-lost") // it arrives, and the answer does not
	r := request("lost", "id-lost", 30*time.Second)
	if _, err := d.Acquire(t.Context(), r); err == nil {
		t.Fatal("acquired though the answer was lost")
	}
	<-lost
	proxy.Heal()
	if n := count(t, direct, prefix+"/lost"); n != 1 {
		t.Fatalf("%d tickets in line, want the one whose put was not answered", n)
	}
	// Nobody releases it, as if that had failed too.
	waitFor(t, 10*time.Second, "renewal of the other lock", func() bool {
		return d.Renew(t.Context(), other, 30*time.Second) == nil
	})
	if n := count(t, direct, prefix+"/lost"); n != 0 {
		t.Error("the ticket stands in line after its lease was renewed")
	}
	h := acquire(t, d, request("lost", "id-next", 30*time.Second))
	release(t, d, h)
	release(t, d, other)
}

// After Close nothing is left, not even a lease.
func TestCloseLeavesNothing(t *testing.T) {
	srv := testbed.Etcd(t, testbed.Faults())
	client := newClient(t, srv.Addr())
	d := newDriver(t, client)
	for i := range 5 {
		r := request(fmt.Sprint("n", i), fmt.Sprint("id-", i), time.Duration(10+i)*time.Minute)
		r.Renewed = i%2 == 0
		acquire(t, d, r)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := keys(t.Context(), srv.Addr()); n != 0 || err != nil {
		t.Errorf("%d keys and leases are left: %v", n, err)
	}
}

// Ten thousand waiters on one name in one process need one watch, and a
// release costs the same as with ten.
func TestManyWaiters(t *testing.T) {
	if testing.Short() {
		t.Skip("queues ten thousand")
	}
	srv := testbed.SharedEtcd(t)
	var c requests
	d := newDriver(t, c.client(t, srv.Addr()), etcd.WithPrefix(randomPrefix()))
	const n = 10000
	h := acquire(t, d, request("crowd", "id-first", time.Minute))
	before := heap()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	granted := make(chan driver.Hold, n)
	var joined, wg sync.WaitGroup
	begun := time.Now()
	slots := make(chan struct{}, 64)
	for i := range n {
		joined.Add(1)
		slots <- struct{}{}
		r := request("crowd", fmt.Sprint("id-", i), time.Minute)
		r.Joined = func() { <-slots; joined.Done() }
		wg.Go(func() {
			if g, err := d.Acquire(ctx, r); err == nil {
				granted <- r.Hold(g.Token)
			}
		})
	}
	joined.Wait()
	took := time.Since(begun)
	each := (heap() - before) / n
	sent := c.unary.Load()
	const grants = 200
	begun = time.Now()
	for range grants {
		release(t, d, h)
		h = <-granted
	}
	t.Logf("%d waiters joined in %v, %d bytes each; %v a grant, %.2f requests", n, took.Round(time.Millisecond), each,
		(time.Since(begun) / grants).Round(time.Microsecond), float64(c.unary.Load()-sent)/grants)
	if each > 4096 { // beside the stack of who waits
		t.Errorf("%d bytes a waiter, want at most 4 KiB", each)
	}
	if sent := c.unary.Load() - sent; sent > grants+20 {
		t.Errorf("%d releases took %d requests", grants, sent)
	}
	cancel()
	wg.Wait()
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client that is confined to a namespace works, and keeps to it.
func TestNamespacedClient(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	direct, client := newClient(t, srv.Addr()), newClient(t, srv.Addr())
	ns := randomPrefix() + "/"
	client.KV = namespace.NewKV(client.KV, ns)
	client.Watcher = namespace.NewWatcher(client.Watcher, ns)
	client.Lease = namespace.NewLease(client.Lease, ns)
	a, b := newLocker(t, newDriver(t, client)), newLocker(t, newDriver(t, client))
	k, err := a.Acquire(t.Context(), "spaced")
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, direct, ns); n != 1 {
		t.Errorf("%d keys in the namespace, want 1", n)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = k.Release(context.Background()) })
	next, err := b.Acquire(t.Context(), "spaced", locker.WithWait(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestBadOptions(t *testing.T) {
	for url, want := range map[string]string{
		"etcd://":                                           "host",
		"etcd://h:1/path":                                   "prefix",
		"etcd://h:1?prefix=a%23b":                           "#",
		"etcd://h:1?prefix=/":                               "prefix",
		"etcd://h:1?dial_timeout=soon":                      "dial_timeout",
		"etcd://h:1?retries=3":                              "retries",
		"etcd://h:1?ca=/some/file":                          "etcds",
		"etcds://h:1?ca=/not/there":                         "ca",
		"etcds://h:1?cert=/not/there":                       "both",
		"etcd://user@h:1":                                   "password",
		"etcd://user:secret-word@h:1?dial_timeout=50ms&x=1": "x",
	} {
		_, err := locker.Open(t.Context(), url)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret-word") {
			t.Errorf("%s: %v, want an error that names %q and no password", url, err, want)
		}
	}
	if _, err := etcd.New(nil); err == nil {
		t.Error("New took a nil client")
	}
	if _, err := etcd.New(newClient(t, "127.0.0.1:1"), nil, etcd.WithPrefix("x/")); err != nil {
		t.Error(err)
	}
}

// A store that is not there is an error that says so, in time.
func TestDownAtStart(t *testing.T) {
	l := openClient(t, fmt.Sprintf("etcd://127.0.0.1:%d", testbed.Port(t)))
	begun := time.Now()
	_, err := l.Acquire(t.Context(), "down")
	if err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("acquire: %v, want an error that tells of a refused connection", err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

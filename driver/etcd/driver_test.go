package etcd_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// Two Lockers on one client, and two goroutines of one Locker, exclude each
// other, which two mutexes on one session of the client's own do not.
func TestOneClientManyLockers(t *testing.T) {
	t.Parallel()
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

// A refused try writes nothing, not even a ticket that it removes again.
func TestRefusedTryWritesNothing(t *testing.T) {
	t.Parallel()
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

// Of many tries for permits at once, exactly as many as there are permits succeed.
func TestTriedPermits(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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

// A client that is confined to a namespace works, and keeps to it.
func TestNamespacedClient(t *testing.T) {
	t.Parallel()
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

// A client that its user has closed is no silent store: every call ends with ErrClosed, a wait without a limit too.
func TestClientIsClosed(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := etcd.WithPrefix(randomPrefix())
	other, client := newDriver(t, newClient(t, srv.Addr()), prefix), newClient(t, srv.Addr())
	d := newDriver(t, client, prefix)
	h := acquire(t, other, request("held", "id-h", time.Minute))
	queued, ended := make(chan struct{}), make(chan error, 1)
	w := request("held", "id-w", time.Minute)
	w.Joined = func() { close(queued) }
	go func() { _, err := d.Acquire(t.Context(), w); ended <- err }()
	<-queued
	_ = client.Close()
	for what, call := range map[string]func() error{
		"a wait": func() error { return <-ended },
		"a try":  func() error { _, err := d.Acquire(t.Context(), tryFor("new", "id-t")); return err },
		"Ping":   func() error { return d.Ping(t.Context()) },
	} {
		var err error
		if took := testbed.Elapsed(func() { err = call() }); !errors.Is(err, driver.ErrClosed) || took > time.Second {
			t.Errorf("%s: %v after %v, want ErrClosed at once", what, err, took)
		}
	}
	release(t, other, h)
}

// A client that lives longer than a Driver does not keep it in memory.
func TestClosedDriverIsForgotten(t *testing.T) {
	t.Parallel()
	d, err := etcd.New(newClient(t, testbed.SharedEtcd(t).Addr()))
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	left := weak.Make(d)
	for deadline := time.Now().Add(10 * time.Second); left.Value() != nil; time.Sleep(10 * time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatal("it is in memory")
		}
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"etcd://":                                           "host",
		"etcd://h:1/path":                                   "prefix",
		"etcd://h:1?prefix=a%23b":                           "#",
		"etcd://h:1?prefix=/":                               "prefix",
		"etcd://h:1?dial_timeout=soon":                      "dial_timeout",
		"etcd://h:1?retries=3":                              "retries",
		"etcd://h:1?ca=/some/file":                          "tls=true",
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
	if _, err := etcd.New(clientv3.NewCtxClient(t.Context())); err == nil {
		t.Error("New took a client without a connection")
	}
	if _, err := etcd.New(newClient(t, "127.0.0.1:1"), nil, etcd.WithPrefix("x/")); err != nil {
		t.Error(err)
	}
}

// With a user the client logs in when the driver is opened, within the context of
// Open.
func TestOpenWithUserWhereNobodyIs(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var err error
	if took := testbed.Elapsed(func() { _, err = locker.Open(ctx, "etcd://me:s3cret@127.0.0.1:1") }); took > 2*time.Second {
		t.Errorf("it took %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "no token from 127.0.0.1:1") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

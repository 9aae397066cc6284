package etcd_test

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// takeTurns has a lock held, waited for, handed over and renewed.
func takeTurns(t *testing.T, a, b *locker.Client) {
	t.Helper()
	ctx := t.Context()
	k, err := a.Acquire(ctx, t.Name(), locker.WithTTL(2*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryAcquire(ctx, t.Name()); !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("a try for a held lock: %v, want ErrNotAcquired", err)
	}
	if err := k.Extend(ctx, 5*time.Second); err != nil {
		t.Errorf("extend: %v", err)
	}
	waits := make(chan *locker.Lock)
	go func() {
		defer close(waits)
		k, err := b.Acquire(ctx, t.Name(), locker.WithWait(10*time.Second))
		if err != nil {
			t.Errorf("wait: %v", err)
			return
		}
		waits <- k
	}()
	waitFor(t, 10*time.Second, "the waiter in line", func() bool {
		line, err := a.Inspect(ctx, t.Name())
		if err != nil {
			t.Fatal(err)
		}
		return len(line.Tickets) == 2
	})
	if names, err := a.List(ctx); err != nil || !slices.Contains(names, t.Name()) {
		t.Errorf("List: %q, %v", names, err)
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	next, ok := <-waits
	if !ok {
		return
	}
	if err := a.Break(ctx, t.Name(), next.Token()); err != nil {
		t.Errorf("break: %v", err)
	}
	select {
	case <-next.Done(): // by the watch
	case <-time.After(2 * time.Second):
		t.Error("the break was not told")
	}
}

// refused has an acquisition fail quickly, with a text and without a secret.
func refused(t *testing.T, url, want string, secrets ...string) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	l, err := locker.Open(ctx, url)
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
		_, err = l.Acquire(ctx, t.Name())
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error that says %q", err, want)
		return
	}
	for _, s := range secrets {
		if strings.Contains(err.Error(), s) {
			t.Errorf("%v tells the secret %q", err, s)
		}
	}
	t.Logf("after %v: %v", time.Since(begun).Round(time.Millisecond), err)
}

// The server has a certificate of an authority of its own, and asks for one of
// the client.
func TestTLS(t *testing.T) {
	certs := testbed.NewCerts(t)
	srv := testbed.Etcd(t, testbed.TLS(certs))
	takeTurns(t, openClient(t, srv.URL()), openClient(t, srv.URL()))

	plain := "etcds://" + srv.Addr()
	refused(t, plain, "certificate signed by unknown authority")
	// The server's alert may come after the client's first write, which then fails.
	refused(t, plain+"?ca="+url.QueryEscape(certs.CA), "code = Unavailable")
	refused(t, srv.URL()+"&server_name=elsewhere", "elsewhere")
	insecure := plain + "?insecure=true&cert=" + url.QueryEscape(certs.Cert) + "&key=" + url.QueryEscape(certs.Key)
	l := openClient(t, insecure)
	if k, err := l.Acquire(t.Context(), "insecure"); err != nil {
		t.Error(err)
	} else if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

const workersPassword = "secret-of-the-worker"

// withUsers turns on authentication: worker has the rights that the package
// comment states and no others, guest has none.
func withUsers(t *testing.T, srv *testbed.Server) {
	t.Helper()
	c := newClient(t, srv.Addr())
	ctx := t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.UserAdd(ctx, "root", "secret-of-root"))
	must(c.UserGrantRole(ctx, "root", "root"))
	must(c.RoleAdd(ctx, "locks"))
	must(c.RoleGrantPermission(ctx, "locks", "locker/", clientv3.GetPrefixRangeEnd("locker/"),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(c.UserAdd(ctx, "worker", workersPassword))
	must(c.UserGrantRole(ctx, "worker", "locks"))
	must(c.UserAdd(ctx, "guest", "secret-of-the-guest"))
	must(c.AuthEnable(ctx))
}

func workerURL(srv *testbed.Server) string {
	return "etcd://worker:" + workersPassword + "@" + srv.Addr()
}

func TestAuthentication(t *testing.T) {
	srv := testbed.Etcd(t, testbed.Faults())
	withUsers(t, srv)
	takeTurns(t, openClient(t, workerURL(srv)), openClient(t, workerURL(srv)))

	refused(t, "etcd://worker:secret-but-wrong@"+srv.Addr(), "invalid user ID or password", "secret-but-wrong")
	refused(t, "etcd://guest:secret-of-the-guest@"+srv.Addr(), "permission denied", "secret-of-the-guest")
	refused(t, workerURL(srv)+"?prefix=others", "permission denied", workersPassword)
	refused(t, srv.URL(), "user name is empty")
}

// A login ends after a while without use, and with the server that gave it:
// the driver logs in again by itself.
func TestLoginRunsOut(t *testing.T) {
	srv := testbed.Etcd(t, testbed.Faults(), testbed.Args("--auth-token-ttl", "1"))
	withUsers(t, srv)
	a, b := openClient(t, workerURL(srv)), openClient(t, workerURL(srv))
	fixed := func() { // which begins with a lease of its own
		t.Helper()
		k, err := a.Acquire(t.Context(), "fixed", locker.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	fixed()
	k, err := b.Acquire(t.Context(), "held") // and watched
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the server looks for idle logins once a second
	fixed()
	takeTurns(t, a, b)
	srv.Restart()
	fixed()
	takeTurns(t, a, b)
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

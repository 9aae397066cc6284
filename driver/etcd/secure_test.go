package etcd_test

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/rights"
)

// The server has a certificate of its own authority, and wants a certificate of the
// client.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	srv := testbed.Etcd(t, testbed.TLS(certs))
	rights.Use(t, openClient(t, srv.URL()), openClient(t, srv.URL()))

	plain := "etcds://" + srv.Addr()
	for what, refused := range map[string]struct{ url, says string }{
		"authority": {plain, "certificate signed by unknown authority"},
		// The server's alert may come after the client's first write, which then fails.
		"client": {plain + "?ca=" + url.QueryEscape(certs.CA), "code = Unavailable"},
		"name":   {srv.URL() + "&server_name=elsewhere", "elsewhere"},
	} {
		t.Run(what, func(t *testing.T) { // each takes as long as a store that cannot be reached
			t.Parallel()
			rights.Refused(t, refused.url, refused.says)
		})
	}
	insecure := plain + "?insecure_skip_verify=true&cert=" + url.QueryEscape(certs.Cert) + "&key=" + url.QueryEscape(certs.Key)
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
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults())
	withUsers(t, srv)
	rights.Use(t, openClient(t, workerURL(srv)), openClient(t, workerURL(srv)))

	rights.Refused(t, "etcd://worker:secret-but-wrong@"+srv.Addr(), "invalid user ID or password", "secret-but-wrong")
	rights.Refused(t, "etcd://guest:secret-of-the-guest@"+srv.Addr(), "permission denied", "secret-of-the-guest")
	rights.Refused(t, workerURL(srv)+"?prefix=others", "permission denied", workersPassword)
	rights.Refused(t, srv.URL(), "user name is empty")

	rights.PingRefused(t, "etcd://guest:secret-of-the-guest@"+srv.Addr(), "may not read below locker/", "secret-of-the-guest")
	if err := openClient(t, workerURL(srv)).Ping(t.Context()); err != nil {
		t.Error(err)
	}

	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte(workersPassword+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openClient(t, "etcd://worker@"+srv.Addr()+"?password_file="+file).Ping(t.Context()); err != nil {
		t.Errorf("with the password in a file: %v", err)
	}
}

// With a password there is one login for many keep-alives, which use one stream.
func TestOneLoginForKeepAlives(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults(), testbed.Args("--bcrypt-cost", "4"))
	withUsers(t, srv)
	var logins atomic.Int64
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{srv.Addr()}, Username: "worker", Password: workersPassword,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.HasSuffix(method, "/Authenticate") {
					logins.Add(1)
				}
				return call(ctx, method, req, reply, cc, opts...)
			})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	d := newDriver(t, client)
	h := acquire(t, d, request("held", "id", time.Minute))
	before := logins.Load()
	for range 20 {
		if err := d.Renew(t.Context(), h, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	if n := logins.Load() - before; n > 1 {
		t.Errorf("%d logins for 20 keep-alives, want 1", n)
	}
	release(t, d, h)
}

// A login ends after a while without use, and with the server that gave it. Then the
// driver logs in again by itself.
func TestLoginRunsOut(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults(), testbed.Args("--auth-token-ttl", "1", "--bcrypt-cost", "4"))
	withUsers(t, srv)
	a, b := openClient(t, workerURL(srv)), openClient(t, workerURL(srv))
	fixed := func() { // its lock begins with a keep-alive
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
	k, err := b.Acquire(t.Context(), "held") // and has a loss watch
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * time.Second) // the server checks for idle logins once a second
	fixed()
	rights.Use(t, a, b)
	srv.Restart()
	fixed()
	rights.Use(t, a, b)
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A stream of watches whose login has run out opens no more watches: the next is opened on
// another one.
func TestWatchAfterLoginRunsOut(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults(), testbed.Args("--auth-token-ttl", "1", "--bcrypt-cost", "4"))
	withUsers(t, srv)
	worker := func() *clientv3.Client {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: []string{srv.Addr()}, Username: "worker", Password: workersPassword, Logger: zap.NewNop(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	admin := worker()
	d := newDriver(t, worker())
	lost := make(chan driver.Hold, 3)
	d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	first := acquire(t, d, request("first", "id-1", time.Minute))
	awaitNotices(t, admin, "locker", 1)
	time.Sleep(3 * time.Second)                                       // the server checks for idle logins once a second
	second := acquire(t, d, request("second", "id-2", 2*time.Minute)) // on a lease of its own
	awaitNotices(t, admin, "locker", 2)
	if err := newDriver(t, admin).Break(t.Context(), second.Name, second.Token); err != nil {
		t.Fatal(err)
	}
	awaitLoss(t, lost, second)
	release(t, d, first)
}

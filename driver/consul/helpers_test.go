package consul_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/hashicorp/go-cleanhttp"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
)

// newTransport makes separate connections, which end with the test.
func newTransport(t testing.TB) *http.Transport {
	transport := cleanhttp.DefaultPooledTransport()
	transport.MaxIdleConnsPerHost = 64
	transport.DisableCompression = true
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

func clientOver(t testing.TB, addr string, way http.RoundTripper) *api.Client {
	t.Helper()
	client, err := api.NewClient(&api.Config{Address: addr, HttpClient: &http.Client{Transport: way}})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newClient makes a client with connections of its own.
func newClient(t testing.TB, addr string) *api.Client {
	t.Helper()
	return clientOver(t, addr, newTransport(t))
}

// prefixOf returns the prefix of a test's keys. Tests that run at once share nothing in the
// store, not even the guards of tries.
func prefixOf(t testing.TB) string {
	test, _, _ := strings.Cut(t.Name(), "/")
	return "locker/" + test
}

// driverOver makes a driver that reaches Consul through the test's transport, has the
// test's prefix unless opts have another, and ends with the test.
func driverOver(t testing.TB, addr string, way http.RoundTripper, opts ...consul.Option) *consul.Driver {
	t.Helper()
	opts = append([]consul.Option{consul.WithPrefix(prefixOf(t))}, opts...)
	d, err := consul.New(clientOver(t, addr, way), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() }) // Consul may be unreachable by then
	return d
}

func acquire(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t testing.TB, k *locker.Lock) {
	t.Helper()
	if err := k.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func first[A, B any](a A, _ B) A { return a }

// keysOf returns the tickets of a name.
func keysOf(t testing.TB, client *api.Client, name string) api.KVPairs {
	t.Helper()
	queue := prefixOf(t) + "/~queue/" + strings.ReplaceAll(name, "/", "=2F") + "/"
	kvs, _, err := client.KV().List(queue, &api.QueryOptions{RequireConsistent: true})
	if err != nil {
		t.Fatal(err)
	}
	return kvs
}

func sessionOf(t testing.TB, client *api.Client, name string) string {
	t.Helper()
	kvs := keysOf(t, client, name)
	if len(kvs) != 1 {
		t.Fatalf("%d keys of %q, want 1", len(kvs), name)
	}
	return kvs[0].Session
}

// awaitLossWatch waits until the driver of a session watches for losses.
func awaitLossWatch(t testing.TB, client *api.Client, session string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		notice, _, err := client.KV().Get(prefixOf(t)+"/~/"+session, nil)
		switch {
		case err != nil:
			t.Fatal(err)
		case notice != nil:
			return
		case time.Now().After(end):
			t.Fatalf("nobody watches for losses of session %s", session)
		}
	}
}

func destroy(t testing.TB, client *api.Client, session string) {
	t.Helper()
	if _, err := client.Session().Destroy(session, nil); err != nil {
		t.Fatal(err)
	}
}

// newLocker makes a Locker that ends with the test.
func newLocker(t testing.TB, d driver.Driver, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	l := locker.New(d, opts...)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// await waits until there are n of something.
func await(t testing.TB, n int, what string, count func() int) {
	t.Helper()
	for end := time.Now().Add(40 * time.Second); count() < n; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("only %d %s, want %d", count(), what, n)
		}
	}
}

// lockForeign locks a key as another program would, and returns its index.
func lockForeign(t testing.TB, admin *api.Client, key string) uint64 {
	t.Helper()
	session, _, err := admin.Session().CreateNoChecks(&api.SessionEntry{TTL: "30s"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { destroy(t, admin, session) })
	if ok, _, err := admin.KV().Acquire(&api.KVPair{Key: key, Session: session, Value: []byte("{}")}, nil); err != nil || !ok {
		t.Fatalf("lock %q: %v, %v", key, ok, err)
	}
	kv, _, err := admin.KV().Get(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	return kv.CreateIndex
}

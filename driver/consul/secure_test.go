package consul_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/rights"
)

func openClient(t *testing.T, url string) *locker.Client {
	t.Helper()
	d, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return newLocker(t, d)
}

// The agent has a certificate of its own authority, and wants a certificate of the
// client.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	srv := testbed.Consul(t, testbed.TLS(certs))
	rights.Use(t, openClient(t, srv.URL()), openClient(t, srv.URL()))

	plain := "consuls://" + srv.Addr()
	rights.Refused(t, plain, "certificate signed by unknown authority")
	// The server's alert may come after the client's first write, which then fails.
	rights.Refused(t, plain+"?ca="+url.QueryEscape(certs.CA), "/v1/kv/")
	named := srv.URL() + "&server_name="
	release(t, acquire(t, openClient(t, named+"localhost"), "named"))
	rights.Refused(t, named+"consul.example.com", "consul.example.com")
	insecure := plain + "?insecure_skip_verify=true&cert=" + url.QueryEscape(certs.Cert) + "&key=" + url.QueryEscape(certs.Key)
	release(t, acquire(t, openClient(t, insecure), "insecure"))
}

const management = "11111111-2222-3333-4444-555555555555"

// newToken makes a token with these rules.
func newToken(t *testing.T, addr, rules string) (secret string) {
	t.Helper()
	admin := newClient(t, addr)
	all := &api.WriteOptions{Token: management}
	policy, _, err := admin.ACL().PolicyCreate(&api.ACLPolicy{Name: fmt.Sprintf("p%x", rand.Uint64()), Rules: rules}, all)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := admin.ACL().TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{ID: policy.ID}}}, all)
	if err != nil {
		t.Fatal(err)
	}
	return token.SecretID
}

// A token needs the rules of the package comment and no others. With fewer rights the
// driver returns an error at once.
func TestACL(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t, testbed.ACL(management))
	with := func(secret string) string { return "consul://:" + secret + "@" + srv.Addr() }
	worker := newToken(t, srv.Addr(), `
		key_prefix "locker/"  { policy = "write" }
		session_prefix ""     { policy = "write" }`)
	rights.Use(t, openClient(t, with(worker)), openClient(t, with(worker)))
	release(t, acquire(t, openClient(t, srv.URL()+"?token="+worker), t.Name()))

	rights.Refused(t, srv.URL(), "Permission denied")
	rights.Refused(t, with("99999999-2222-3333-4444-555555555555"), "ACL not found", "99999999")
	rights.Refused(t, with(worker)+"?prefix=others", "Permission denied", worker)
	keysOnly := newToken(t, srv.Addr(), `key_prefix "locker/" { policy = "write" }`)
	rights.Refused(t, with(keysOnly), "session:write", keysOnly)
	reader := newToken(t, srv.Addr(), `
		key_prefix "locker/"  { policy = "read" }
		session_prefix ""     { policy = "write" }`)
	rights.Refused(t, with(reader), "Permission denied", reader)

	partial := openClient(t, with(newToken(t, srv.Addr(), `
		key_prefix "locker/"               { policy = "write" }
		key_prefix "locker/~queue/hidden/" { policy = "deny" }
		session_prefix ""                  { policy = "write" }`)))
	hidden := acquire(t, openClient(t, with(worker)), "hidden")
	if names, err := partial.List(t.Context()); err == nil || !strings.Contains(err.Error(), "may not read all keys") {
		t.Errorf("a list without the names that are hidden: %q, %v", names, err)
	}
	release(t, hidden)

	rights.PingRefused(t, with(keysOnly), "session:write", keysOnly)
	rights.PingRefused(t, with(reader), "key:write", reader)
	rights.PingRefused(t, srv.URL(), "key:read")
	if err := openClient(t, with(worker)).Ping(t.Context()); err != nil {
		t.Error(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(worker+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := openClient(t, srv.URL()+"?token_file="+file).Ping(t.Context()); err != nil {
		t.Errorf("with the token in a file: %v", err)
	}
}

// A token that loses the right to sessions does not make the driver believe that its session is over, not even beside a
// leader that does not know the session yet. Consul says that it leaves sessions out only if the request has a token.
func TestRightOfSessionsIsTaken(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t, testbed.ACL(management))
	admin, all := newClient(t, srv.Addr()), &api.WriteOptions{Token: management}
	const keys = `key_prefix "locker/" { policy = "write" }`
	for _, anonymous := range []bool{false, true} {
		t.Run(fmt.Sprint("anonymous=", anonymous), func(t *testing.T) {
			policy, _, err := admin.ACL().PolicyCreate(&api.ACLPolicy{
				Name: fmt.Sprintf("taken-%v", anonymous), Rules: keys + ` session_prefix "" { policy = "write" }`,
			}, all)
			if err != nil {
				t.Fatal(err)
			}
			token := &api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{ID: policy.ID}}}
			if anonymous {
				token.AccessorID = "00000000-0000-0000-0000-000000000002"
				token, _, err = admin.ACL().TokenUpdate(token, all)
				token.SecretID = ""
			} else {
				token, _, err = admin.ACL().TokenCreate(token, all)
			}
			if err != nil {
				t.Fatal(err)
			}
			w := &tampered{RoundTripper: newTransport(t)}
			client, err := api.NewClient(&api.Config{Address: srv.Addr(), Token: token.SecretID, HttpClient: &http.Client{Transport: w}})
			if err != nil {
				t.Fatal(err)
			}
			d, err := consul.New(client, consul.WithPrefix(prefixOf(t)))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			h := get(t, d, request(t.Name()))
			policy.Rules = keys
			if _, _, err := admin.ACL().PolicyUpdate(policy, all); err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int64
			w.with(func(r *http.Request) (*http.Response, error) {
				if strings.HasPrefix(r.URL.Path, "/v1/session/renew/") && asked.Add(1) == 1 {
					return reply(r, http.StatusNotFound, "Session id not found")
				}
				return nil, nil
			})
			if err := d.Renew(t.Context(), h, 10*time.Second); err == nil || errors.Is(err, driver.ErrLost) {
				t.Errorf("Renew: %v, want an error that is not ErrLost", err)
			}
		})
	}
}

// No two requests share a connection at once, so a dead connection fails one request
// and no others.
func TestTLSWithoutHTTP2(t *testing.T) {
	t.Parallel()
	protos := make(chan string, 10)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protos <- r.Proto
		http.Error(w, "Permission denied", http.StatusForbidden)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	d, err := open(t.Context(), "consuls://"+srv.Listener.Addr().String()+"?insecure_skip_verify=true")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Inspect(t.Context(), t.Name()); err == nil {
		t.Error("Inspect was not refused")
	}
	if proto := <-protos; proto != "HTTP/1.1" {
		t.Errorf("the driver speaks %s", proto)
	}
}

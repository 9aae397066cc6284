package consul_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

func openClient(t *testing.T, url string) *locker.Client {
	t.Helper()
	d, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return newLocker(t, d)
}

// takeTurns has a lock held, waited for, handed over, renewed, listed and
// broken: all that a token needs rights for.
func takeTurns(t *testing.T, a, b *locker.Client) {
	t.Helper()
	ctx := t.Context()
	k := acquire(t, a, t.Name())
	if _, err := b.TryAcquire(ctx, t.Name()); !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("a try for a held lock: %v, want ErrNotAcquired", err)
	}
	if err := k.Extend(ctx, time.Minute); err != nil { // to a longer session
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
	awaitLine(t, a, t.Name(), 2)
	if names, err := a.List(ctx); err != nil || !slices.Contains(names, t.Name()) {
		t.Errorf("List: %q, %v", names, err)
	}
	release(t, k)
	next, ok := <-waits
	if !ok {
		return
	}
	time.Sleep(400 * time.Millisecond) // until the letter box is open
	if err := a.Break(ctx, t.Name(), next.Token()); err != nil {
		t.Errorf("break: %v", err)
	}
	select {
	case <-next.Done():
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
	_, err := openClient(t, url).Acquire(ctx, t.Name())
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

// The agent has a certificate of an authority of its own, and asks for one of
// the client.
func TestTLS(t *testing.T) {
	certs := testbed.NewCerts(t)
	srv := testbed.Consul(t, testbed.TLS(certs))
	takeTurns(t, openClient(t, srv.URL()), openClient(t, srv.URL()))

	plain := "consuls://" + srv.Addr()
	refused(t, plain, "certificate signed by unknown authority")
	// The server's alert may come after the client's first write, which then fails.
	refused(t, plain+"?ca="+url.QueryEscape(certs.CA), "/v1/session/create")
	insecure := plain + "?insecure=true&cert=" + url.QueryEscape(certs.Cert) + "&key=" + url.QueryEscape(certs.Key)
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

// A token with the rules of the package comment and no others will do; less
// will not, and is told at once.
func TestACL(t *testing.T) {
	srv := testbed.Consul(t, testbed.ACL(management))
	with := func(secret string) string { return "consul://:" + secret + "@" + srv.Addr() }
	worker := newToken(t, srv.Addr(), `
		key_prefix "locker/"  { policy = "write" }
		session_prefix ""     { policy = "write" }`)
	takeTurns(t, openClient(t, with(worker)), openClient(t, with(worker)))
	release(t, acquire(t, openClient(t, srv.URL()+"?token="+worker), t.Name()))

	refused(t, srv.URL(), "Permission denied")
	refused(t, with("99999999-2222-3333-4444-555555555555"), "ACL not found", "99999999")
	refused(t, with(worker)+"?prefix=others", "Permission denied", worker)
	keysOnly := newToken(t, srv.Addr(), `key_prefix "locker/" { policy = "write" }`)
	refused(t, with(keysOnly), "session:write", keysOnly)
	reader := newToken(t, srv.Addr(), `
		key_prefix "locker/"  { policy = "read" }
		session_prefix ""     { policy = "write" }`)
	refused(t, with(reader), "Permission denied", reader)
}

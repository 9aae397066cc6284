package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// configured starts a server with more lines in its configuration file.
func configured(t *testing.T, lines string) *testbed.Server {
	t.Helper()
	return testbed.Nats(t, testbed.Faults(), testbed.Args(lines))
}

// A server without JetStream is unavailable to everybody, and the error says what is missing.
func TestNoJetStream(t *testing.T) {
	t.Parallel()
	srv := configured(t, "jetstream: disabled")
	_, err := process(t, srv.URL()).TryAcquire(t.Context(), "a")
	if !errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "-js") {
		t.Error(err)
	}
}

// A server with users wants the right user and password, and no error shows a secret.
func TestLogin(t *testing.T) {
	t.Parallel()
	srv := configured(t, `authorization { users: [ { user: me, password: geheim } ] }`)
	if err := take(t, process(t, with(srv.URL(), "me:geheim@", "")), "login").Release(t.Context()); err != nil {
		t.Error(err)
	}
	for _, user := range []string{"", "me:falsch@", "you:geheim@", "geheim@"} {
		_, err := process(t, with(srv.URL(), user, "")).TryAcquire(t.Context(), "login")
		if err == nil || errors.Is(err, locker.ErrUnavailable) || strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "falsch") {
			t.Errorf("user %q: %v", user, err)
		}
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	srv := configured(t, `authorization { token: geheim }`)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{with(srv.URL(), "geheim@", ""), with(srv.URL(), "", "?token_file="+file)} {
		if err := take(t, process(t, u), "token").Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// The rights that the package comment lists suffice, and what is missing is named.
func TestRights(t *testing.T) {
	t.Parallel()
	srv := configured(t, `
authorization {
  users: [
    { user: admin, password: geheim }
    { user: app, password: geheim, permissions: {
        publish: ["$KV.locker.>", "$JS.API.STREAM.INFO.KV_locker", "$JS.API.DIRECT.GET.KV_locker"]
        subscribe: ["_INBOX.>", "_LOCKER.locker.>"] } }
    { user: deaf, password: geheim, permissions: {
        publish: ["$KV.locker.>", "$JS.API.STREAM.INFO.KV_locker", "$JS.API.DIRECT.GET.KV_locker"]
        subscribe: ["_INBOX.>"] } }
    { user: writer, password: geheim, permissions: {
        publish: ["$KV.locker.>", "$JS.API.STREAM.INFO.KV_locker"]
        subscribe: ["_INBOX.>"] } }
    { user: mute, password: geheim, permissions: {
        publish: ["$KV.locker.>", "$JS.API.STREAM.INFO.KV_locker", "$JS.API.DIRECT.GET.KV_locker"]
        subscribe: ["_LOCKER.locker.>"] } }
    { user: reader, password: geheim, permissions: {
        publish: ["$JS.API.STREAM.INFO.KV_locker", "$JS.API.DIRECT.GET.KV_locker"]
        subscribe: ["_INBOX.>"] } }
  ]
}`)
	as := func(t *testing.T, user string) *locker.Client {
		t.Helper()
		return process(t, with(srv.URL(), user+":geheim@", "?timeout=10s"))
	}
	unanswered := func(t *testing.T, user string) *locker.Client {
		t.Helper()
		return process(t, with(srv.URL(), user+":geheim@", "?timeout=1s"))
	}
	if err := unanswered(t, "app").Ping(t.Context()); err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "STREAM.CREATE.KV_locker") {
		t.Errorf("without a bucket, and the right to make it: %v", err)
	}
	if err := as(t, "admin").Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for user, subject := range map[string]string{"reader": "$KV.locker", "writer": "DIRECT.GET.KV_locker", "mute": "_INBOX"} {
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			l := unanswered(t, user)
			_, err := l.TryAcquire(t.Context(), user)
			for verb, err := range map[string]error{"ping": l.Ping(t.Context()), "try": err} {
				if err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), subject) {
					t.Errorf("%s as the user %s: %v, want the subject %s in it", verb, user, err, subject)
				}
			}
		})
	}
	t.Run("watch", func(t *testing.T) {
		t.Parallel()
		store := opened(t, with(srv.URL(), "deaf:geheim@", "?timeout=1s")).Store()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := store.Watch(ctx, "locker:n:deaf", func() { t.Error("a watch has begun without the right to listen") }); !errors.Is(err, natsgo.ErrPermissionViolation) {
			t.Errorf("watch without the right to listen: %v", err)
		}
	})
	for _, user := range []string{"app", "deaf"} { // a process that may not subscribe polls
		t.Run(user, func(t *testing.T) {
			t.Parallel()
			a, b := as(t, user), as(t, user)
			if err := a.Ping(t.Context()); err != nil {
				t.Errorf("ping as the user %s: %v", user, err)
			}
			handedOff(t, a, b, user)
		})
	}
}

// handedOff fails unless the lock of a passes on to b soon after its release.
func handedOff(t *testing.T, a, b *locker.Client, name string) {
	t.Helper()
	k := take(t, a, name)
	got := make(chan error, 1)
	go func() {
		next, err := b.Acquire(t.Context(), name)
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}()
	waitFor(t, 10*time.Second, "waiter", func() bool {
		q, err := a.Inspect(t.Context(), name)
		return err == nil && len(q.Tickets) == 2
	})
	time.Sleep(500 * time.Millisecond)
	took := testbed.Elapsed(func() {
		if err := errors.Join(k.Release(t.Context()), <-got); err != nil {
			t.Error(err)
		}
	})
	t.Logf("a hand-off took %v", took.Round(time.Millisecond))
	if took > 500*time.Millisecond {
		t.Errorf("%s: a hand-off took %v", name, took)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	srv := configured(t, fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }", certs.ServerCert, certs.ServerKey, certs.CA))
	q := url.Values{"tls": {"true"}, "ca": {certs.CA}, "cert": {certs.Cert}, "key": {certs.Key}}
	if err := take(t, process(t, srv.URL()+"?"+q.Encode()), "tls").Release(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := process(t, srv.URL()+"?tls=true").TryAcquire(t.Context(), "tls"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("without the authority: %v", err)
	}
}

package redis_test

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/rights"
)

// TestTLS reaches a server that has a certificate of an authority of its own, and
// asks for one of the client.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	port := strconv.Itoa(testbed.Port(t))
	testbed.Redis(t, testbed.Faults(), testbed.Args("--tls-port", port, "--tls-cert-file", certs.ServerCert,
		"--tls-key-file", certs.ServerKey, "--tls-ca-cert-file", certs.CA, "--tls-auth-clients", "yes"))
	own := url.Values{"cert": {certs.Cert}, "key": {certs.Key}}
	with := func(scheme, name, value string) string {
		params := url.Values{"cert": own["cert"], "key": own["key"], name: {value}}
		return scheme + "://127.0.0.1:" + port + "?" + params.Encode()
	}
	good := with("rediss", "ca", certs.CA)
	rights.Use(t, process(t, good), process(t, with("redis", "ca", certs.CA)+"&tls=true&server_name=localhost"))
	if err := process(t, with("rediss", "insecure_skip_verify", "true")).Ping(t.Context()); err != nil {
		t.Errorf("unverified: %v", err)
	}
	rights.Refused(t, "rediss://127.0.0.1:"+port+"?"+own.Encode(), "certificate signed by unknown authority")
	rights.Refused(t, good+"&server_name=elsewhere", "elsewhere")
	// The server's alert may meet a request that is being sent.
	err := process(t, "rediss://127.0.0.1:"+port+"?ca="+url.QueryEscape(certs.CA)).Ping(t.Context())
	if err == nil || !strings.Contains(err.Error(), "certificate required") && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("without a certificate: %v", err)
	}
}

// TestPasswordFile: neither the URL nor an error has the password.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Args("--requirepass", "s3cret-word"))
	file := filepath.Join(t.TempDir(), "password")
	address := "redis://" + srv.Addr() + "?password_file=" + url.QueryEscape(file)
	for password, want := range map[string]string{"s3cret-word\n": "", "wrong-s3cret": "WRONGPASS"} {
		if err := os.WriteFile(file, []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
		err := process(t, address).Ping(t.Context())
		if want == "" != (err == nil) || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%q: %v, want %q", password, err, want)
		}
	}
}

// TestPingRights: for a user who may only read, or may not notify others of a
// release, or lacks the right to one command or key, Ping says what is missing.
func TestPingRights(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	admin := dial(t, srv.Addr())
	all := "+" + strings.Join(strings.Fields(redis.ACLCommands), " +")
	type user struct{ rules, want string }
	users := map[string]user{
		"reader":    {"~locker:* &locker:* -@all +@read +@connection", "NOPERM"},
		"keyless":   {"~others:* &locker:* -@all " + all, "NOPERM"},
		"fenceless": {"~locker:{* ~locker:protocol &locker:* -@all " + all, "key"},
		"mute":      {"~locker:* resetchannels -@all " + all, "channel"},
	}
	for _, c := range strings.Fields(redis.ACLCommands) {
		switch c {
		case "eval", "evalsha", "subscribe", "unsubscribe", "ping", "select", "scan", "getrange", "wait": // no script runs them
		default:
			users["no"+c] = user{"~locker:* &locker:* -@all " + all + " -" + c, "command"}
		}
	}
	for user, c := range users {
		rules := []any{"ACL", "SETUSER", user, "on", ">s3cret", "resetkeys", "resetchannels"}
		for rule := range strings.FieldsSeq(c.rules) {
			rules = append(rules, rule)
		}
		if err := admin.Do(t.Context(), rules...).Err(); err != nil {
			t.Fatal(err)
		}
		rights.PingRefused(t, "redis://"+user+":s3cret@"+srv.Addr(), c.want, "s3cret")
	}
}

// TestReadTimeout: each try of a request to a server that hangs takes no longer
// than the URL says.
func TestReadTimeout(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	l := process(t, srv.URL()+"?replica_timeout=10ms&read_timeout=300ms")
	if err := l.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	srv.Pause()
	defer srv.Resume()
	ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second) // the default is 3 s for each try
	defer cancel()
	if err := l.Ping(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Ping of a server that hangs: %v, want an error before its context ends", err)
	}
}

// TestPoolSize: pool_size bounds the connections of many concurrent callers.
func TestPoolSize(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	before := connections(t, c)
	l := process(t, srv.URL()+"?pool_size=1")
	for range 20 {
		name := newName()
		go func() { _, _ = l.Acquire(t.Context(), name, locker.WithoutRenewal(), locker.WithTTL(time.Second)) }()
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := connections(t, c)
	maps.DeleteFunc(list, func(id, _ string) bool { return before[id] != "" })
	if len(list) > 2 { // with the subscription
		t.Errorf("%d connections: %q", len(list), list)
	}
}

// connections returns the connections that a server has, by id.
func connections(t *testing.T, c *goredis.Client) map[string]string {
	t.Helper()
	list, err := c.ClientList(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	m := make(map[string]string)
	for line := range strings.Lines(list) {
		id, _, _ := strings.Cut(line, " ")
		m[id] = line
	}
	return m
}

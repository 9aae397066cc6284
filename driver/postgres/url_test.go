package postgres_test

import (
	"bytes"
	"log/slog"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestURLSaysWhatIsWrong(t *testing.T) {
	junk := filepath.Join(t.TempDir(), "junk")
	ok(t, os.WriteFile(junk, []byte("pa55\nw0rd"), 0o600))
	for query, want := range map[string]string{
		"pool_size=0":                       "pool_size",
		"pool_size=3&pool_max_conns=3":      "pool_size and pool_max_conns",
		"dial_timeout=5":                    "dial_timeout",
		"dial_timeout=5s&connect_timeout=5": "dial_timeout and connect_timeout",
		"tls=true&sslmode=require":          "tls and sslmode",
		"tls=false&sslrootcert=/x":          "tls and sslrootcert",
		"ca=/x":                             "tls=true",
		"tls=true&ca=" + junk:               "parameter ca",
		"password_file=" + junk:             "password_file",
		"schema=":                           "schema",
		"schema=" + strings.Repeat("x", 64): "schema",
		"prefix=" + strings.Repeat("x", 41): "prefix",
		"pool=3":                            `unknown parameter "pool" (known: `,
		"read_timeout=3s":                   `unknown parameter "read_timeout" (known: `,
		"sslmode=maybe":                     "sslmode",
		"liveness=1ms":                      "liveness",
		"durability=none":                   "durability",
	} {
		_, err := postgres.Open(t.Context(), "postgres://u@h/db?"+query)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "pa55") {
			t.Errorf("%s: %v, want %q in it and no secret", query, err, want)
		}
	}
	for raw, want := range map[string]string{"mysql://h/db": "want postgres or postgresql", "h": "malformed"} {
		if _, err := postgres.Open(t.Context(), raw); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", raw, err, want)
		}
	}
	p := newPool(t, "postgres://u@h/db", nil)
	if _, err := postgres.New(p, postgres.WithLogger(slog.Default())); err == nil || !strings.Contains(err.Error(), "Open") {
		t.Errorf("New with a logger: %v", err)
	}
}

func TestURLSettings(t *testing.T) {
	open := func(query string) *pgx.ConnConfig {
		t.Helper()
		d, err := postgres.Open(t.Context(), "postgres://u@h1,h2:7/db?"+query)
		ok(t, err)
		t.Cleanup(func() { ok(t, d.Close()) })
		return postgres.ConnConfig(d)
	}
	for query, want := range map[string]time.Duration{
		"": 5 * time.Second, "dial_timeout=300ms": 300 * time.Millisecond, "connect_timeout=7": 7 * time.Second, "connect_timeout=0": 0,
	} {
		if c := open(query); c.ConnectTimeout != want {
			t.Errorf("%s: a connection may take %v, want %v", query, c.ConnectTimeout, want)
		}
	}
	c := open("tls=true")
	if c.TLSConfig == nil || c.TLSConfig.InsecureSkipVerify || c.TLSConfig.ServerName != "h1" || len(c.Fallbacks) != 1 ||
		c.Fallbacks[0].TLSConfig == nil || c.Fallbacks[0].TLSConfig.ServerName != "h2" || c.Fallbacks[0].TLSConfig.InsecureSkipVerify || c.Fallbacks[0].Port != 7 {
		t.Errorf("tls=true: %+v and then %+v", c.TLSConfig, c.Fallbacks[0])
	}
	if c := open("tls=false"); c.TLSConfig != nil || len(c.Fallbacks) != 1 || c.Fallbacks[0].TLSConfig != nil {
		t.Errorf("tls=false: %+v", c)
	}
	d, err := postgres.Open(t.Context(), "postgres://u@h/db?pool_size=7")
	ok(t, err)
	defer d.Close()
	if n := postgres.MaxConns(d); n != 7 {
		t.Errorf("pool_size=7: %d", n)
	}
}

// secureServer starts a server that accepts the role app by TLS alone, with a client certificate and
// the password s3cret.
func secureServer(t *testing.T, certs *testbed.Certs) *testbed.Server {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		ok(t, os.Chmod(d, 0o755)) //nolint:gosec // its user passes through
	}
	own := func(name string, text []byte) string {
		file := filepath.Join(dir, name)
		ok(t, os.WriteFile(file, text, 0o600))
		if os.Geteuid() == 0 {
			u, err := user.Lookup("postgres")
			ok(t, err)
			uid, err := strconv.Atoi(u.Uid)
			ok(t, err)
			ok(t, os.Chown(file, uid, -1))
		}
		return file
	}
	copied := func(from string) string {
		text, err := os.ReadFile(from)
		ok(t, err)
		return own(filepath.Base(from), text)
	}
	hba := own("hba", []byte("host all postgres 127.0.0.1/32 trust\nhostssl all app 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n"))
	srv := testbed.Postgres(t, testbed.Args("-c", "ssl=on", "-c", "ssl_cert_file="+copied(certs.ServerCert),
		"-c", "ssl_key_file="+copied(certs.ServerKey), "-c", "ssl_ca_file="+copied(certs.CA), "-c", "hba_file="+hba))
	p := newPool(t, srv.URL(), nil)
	_, err := p.Exec(t.Context(), "CREATE ROLE app LOGIN PASSWORD 's3cret'; CREATE SCHEMA locks AUTHORIZATION app", pgx.QueryExecModeSimpleProtocol)
	ok(t, err)
	return srv
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	srv := secureServer(t, certs)
	at, err := url.Parse(srv.URL())
	ok(t, err)
	secret := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	try := func(host string, password bool, parameters map[string]string) error {
		q := url.Values{"schema": {"locks"}}
		for k, v := range parameters {
			q.Set(k, v)
		}
		u := url.URL{Scheme: "postgres", Host: host + ":" + at.Port(), Path: "/postgres", RawQuery: q.Encode(), User: url.User("app")}
		if password {
			u.User = url.UserPassword("app", "s3cret")
		}
		l, err := locker.Open(t.Context(), u.String())
		if err != nil {
			return err
		}
		defer l.Close()
		k, err := l.TryAcquire(t.Context(), unique())
		if err != nil {
			return err
		}
		return k.Release(t.Context())
	}
	for _, c := range []struct {
		parameters map[string]string
		want       string // in the error
	}{
		{map[string]string{"tls": "true", "ca": certs.CA, "cert": certs.Cert, "key": certs.Key}, ""},
		{map[string]string{"tls": "true", "insecure_skip_verify": "true", "cert": certs.Cert, "key": certs.Key}, ""},
		{map[string]string{"sslmode": "verify-full", "sslrootcert": certs.CA, "sslcert": certs.Cert, "sslkey": certs.Key}, ""},
		{map[string]string{"tls": "true", "cert": certs.Cert, "key": certs.Key}, "unknown authority"},
		{map[string]string{"tls": "true", "ca": certs.CA, "cert": certs.Cert, "key": certs.Key, "server_name": "elsewhere"}, "elsewhere"},
		{map[string]string{"tls": "true", "ca": certs.CA, "cert": certs.Cert, "key": certs.Key, "server_name": "localhost"}, ""},
		{map[string]string{"tls": "true", "ca": certs.CA}, "certificate"},
		{map[string]string{"tls": "false"}, "no encryption"},
	} {
		for _, host := range []string{"127.0.0.1", "localhost"} {
			for _, password := range []bool{true, false} {
				if !password {
					c.parameters["password_file"] = secret
				}
				err := try(host, password, c.parameters)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%v: %v, want %q", c.parameters, err, c.want)
				}
				if err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error tells the password: %v", err)
				}
				delete(c.parameters, "password_file")
			}
		}
	}
}

// The logger gets what is not returned as an error.
func TestLogger(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	prefix := unique()
	d, err := postgres.Open(t.Context(), testbed.SharedPostgres(t).URL()+"&listen=false&prefix="+prefix, postgres.WithLogger(logger))
	ok(t, err)
	_, err = d.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute})
	ok(t, err)
	p := newPool(t, testbed.SharedPostgres(t).URL(), nil)
	_, err = p.Exec(t.Context(), "CREATE OR REPLACE FUNCTION "+prefix+"_list"+postgres.Version+"() RETURNS SETOF bytea LANGUAGE plpgsql AS "+
		"$$ BEGIN RAISE WARNING 'mind the gap'; END $$")
	ok(t, err)
	_, err = d.List(t.Context())
	ok(t, err)
	ok(t, d.Close())
	if !strings.Contains(log.String(), "mind the gap") || !strings.Contains(log.String(), "level=WARN") {
		t.Errorf("the log is %q", log.String())
	}
	log.Reset()
	d, err = postgres.Open(t.Context(), "postgres://u:s3cret@127.0.0.1:1/db?listen=false", postgres.WithLogger(logger))
	ok(t, err)
	if err = d.Ping(t.Context()); err == nil {
		t.Error("no error")
	}
	ok(t, d.Close())
	if !strings.Contains(log.String(), "connection refused") || strings.Contains(log.String(), "s3cret") {
		t.Errorf("the log is %q", log.String())
	}
}

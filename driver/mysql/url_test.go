package mysql_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestURLSettings(t *testing.T) {
	c, err := mysql.Config("mysql://u:p%40%2F:@h/db?dial_timeout=300ms&read_timeout=20s&write_timeout=3s&pool_size=2&tls=true" +
		"&allowCleartextPasswords=true&maxAllowedPacket=1048576&compress=true")
	must(t, err)
	if c.Timeout != 300*time.Millisecond || c.ReadTimeout != 20*time.Second || c.WriteTimeout != 3*time.Second ||
		c.Passwd != "p@/:" || c.Addr != "h:3306" || c.DBName != "db" || !c.AllowCleartextPasswords || !c.AllowNativePasswords ||
		c.MaxAllowedPacket != 1<<20 || c.TLS == nil || c.TLS.ServerName != "h" || c.TLS.InsecureSkipVerify || !strings.Contains(c.FormatDSN(), "compress=true") {
		t.Errorf("the configuration is %+v", c)
	}
	c, err = mysql.Config("mysql://u@h/db?timeout=7s&readTimeout=8s&writeTimeout=9s&tls=preferred")
	must(t, err)
	if c.Timeout != 7*time.Second || c.ReadTimeout != 8*time.Second || c.WriteTimeout != 9*time.Second || c.TLSConfig != "preferred" || c.TLS != nil {
		t.Errorf("by the names of a DSN: %+v", c)
	}
	c, err = mysql.Config("mysql://u@h/db")
	must(t, err)
	if c.Timeout != 5*time.Second || c.ReadTimeout != 0 || c.WriteTimeout != 0 || c.TLS != nil || c.TLSConfig != "" || c.Params["autocommit"] != "1" {
		t.Errorf("by default: %+v", c)
	}
}

// secureServer starts a server that accepts the user app by TLS alone, with a client certificate and the password
// s3cret.
func secureServer(t *testing.T, start func(testing.TB, ...testbed.Option) *testbed.Server, certs *testbed.Certs) *testbed.Server {
	t.Helper()
	dir := serverDir(t)
	copied := func(from string) string {
		text, err := os.ReadFile(from)
		must(t, err)
		file := filepath.Join(dir, filepath.Base(from))
		must(t, os.WriteFile(file, text, 0o644)) //nolint:gosec // the server reads it
		return file
	}
	srv := start(t, testbed.Args("--ssl-ca="+copied(certs.CA), "--ssl-cert="+copied(certs.ServerCert), "--ssl-key="+copied(certs.ServerKey)))
	root := connect(t, srv, "?multiStatements=true")
	_, err := root.ExecContext(t.Context(), fmt.Sprintf(
		"CREATE USER app@'%%' IDENTIFIED BY 's3cret' REQUIRE X509; GRANT ALL ON %s.* TO app@'%%'", configOf(t, srv.URL()).DBName))
	must(t, err)
	return srv
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	secret := filepath.Join(t.TempDir(), "secret")
	must(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	for name, start := range map[string]func(testing.TB, ...testbed.Option) *testbed.Server{"MariaDB": testbed.MariaDB, "MySQL": testbed.MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := secureServer(t, start, certs)
			own := map[string]string{"cert": certs.Cert, "key": certs.Key}
			for _, c := range []struct {
				host       string
				parameters map[string]string
				own        map[string]string
				want       string // in the error
			}{
				{"127.0.0.1", map[string]string{"tls": "true", "ca": certs.CA}, own, ""},
				{"localhost", map[string]string{"tls": "true", "ca": certs.CA, "password_file": secret}, own, ""},
				{"127.0.0.1", map[string]string{"tls": "true", "insecure_skip_verify": "true"}, own, ""},
				{"127.0.0.1", map[string]string{"tls": "true", "ca": certs.CA, "server_name": "localhost"}, own, ""},
				{"127.0.0.1", map[string]string{"tls": "true", "ca": certs.CA, "server_name": "elsewhere"}, own, "elsewhere"},
				{"127.0.0.1", map[string]string{"tls": "true"}, own, "unknown authority"},
				{"127.0.0.1", map[string]string{"tls": "true", "ca": certs.CA}, nil, "Access denied"},
				{"127.0.0.1", map[string]string{"tls": "skip-verify"}, nil, "Access denied"},
				{"127.0.0.1", map[string]string{"tls": "false"}, nil, "Access denied"},
				{"127.0.0.1", nil, nil, "Access denied"},
			} {
				err := trySecure(t, srv, c.host, c.parameters, c.own)
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("%s %v: %v, want %q", c.host, c.parameters, err, c.want)
				}
				if err != nil && strings.Contains(err.Error(), "s3cret") {
					t.Errorf("the error tells the password: %v", err)
				}
			}
		})
	}
}

// trySecure acquires a lock by a URL of these parameters.
func trySecure(t *testing.T, srv *testbed.Server, host string, parameters ...map[string]string) error {
	t.Helper()
	as := configOf(t, srv.URL())
	q := url.Values{}
	for _, some := range parameters {
		for k, v := range some {
			q.Set(k, v)
		}
	}
	u := url.URL{Scheme: "mysql", Host: strings.Replace(as.Addr, "127.0.0.1", host, 1), Path: as.DBName, User: url.UserPassword("app", "s3cret")}
	if q.Has("password_file") {
		u.User = url.User("app")
	}
	u.RawQuery = q.Encode()
	l, err := locker.Open(t.Context(), u.String())
	if err != nil {
		return err
	}
	defer l.Close()
	k, err := l.TryAcquire(t.Context(), "a")
	if err != nil {
		return err
	}
	return k.Release(t.Context())
}

// Messages of go-sql-driver go to the logger, and nowhere else.
func TestLogger(t *testing.T) {
	srv := testbed.SharedMariaDB(t)
	var log bytes.Buffer
	proxy := srv.Proxy(t)
	d, err := mysql.Open(t.Context(), proxy.URL(), mysql.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	must(t, err)
	must(t, d.Ping(t.Context()))
	killAll(t, connect(t, srv, ""))
	time.Sleep(100 * time.Millisecond)
	_ = d.Ping(t.Context())
	must(t, d.Close())
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "mysql: ") {
		t.Errorf("the log is %q", log.String())
	}
	db, err := sql.Open("mysql", "u@/db")
	must(t, err)
	defer db.Close()
	if _, err := mysql.New(db, mysql.WithLogger(slog.Default())); err == nil || !strings.Contains(err.Error(), "Open") {
		t.Errorf("New with a logger: %v", err)
	}
}

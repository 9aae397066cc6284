package zookeeper_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/rights"
)

// TestTLS uses a server that has a certificate of its own authority, and wants a
// certificate of the client.
func TestTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	dir := t.TempDir()
	port := testbed.Port(t)
	slot(t)
	testbed.Zookeeper(t, testbed.Faults(), testbed.Args(
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory",
		fmt.Sprintf("secureClientPort=%d", port), "secureClientPortAddress=127.0.0.1",
		"ssl.keyStore.location="+store(t, dir, "server", certs.ServerKey, certs.ServerCert), "ssl.keyStore.type=PEM",
		"ssl.trustStore.location="+store(t, dir, "ca", certs.CA), "ssl.trustStore.type=PEM",
		"ssl.hostnameVerification=false",
	))
	with := func(params url.Values) string {
		return fmt.Sprintf("zookeepers://127.0.0.1:%d/t?%s", port, params.Encode())
	}
	own := url.Values{"cert": {certs.Cert}, "key": {certs.Key}}
	full := url.Values{"ca": {certs.CA}, "cert": {certs.Cert}, "key": {certs.Key}}
	named := url.Values{"ca": {certs.CA}, "cert": {certs.Cert}, "key": {certs.Key}, "server_name": {"localhost"}}
	insecure := url.Values{"cert": {certs.Cert}, "key": {certs.Key}, "insecure_skip_verify": {"true"}}
	wrong := url.Values{"ca": {certs.CA}, "cert": {certs.Cert}, "key": {certs.Key}, "server_name": {"elsewhere"}}
	for _, params := range []url.Values{full, named, insecure} {
		c := client(t, with(params))
		rights.Use(t, c, client(t, with(params)))
	}
	for want, params := range map[string]url.Values{
		"certificate signed by unknown authority": own,
		"elsewhere": wrong,
		"zk: ":      {"ca": {certs.CA}}, // no certificate of the client's
	} {
		d, ctx := open(t, with(params)).(driver.Pinger), ctxFor(t, 20*time.Second)
		err := d.Ping(ctx)
		for err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), want) {
			err = d.Ping(ctx) // Ping waits for a second, in which the first connection may not have failed
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// store joins PEM files into one, as ZooKeeper needs it.
func store(t *testing.T, dir, name string, files ...string) string {
	t.Helper()
	var all []byte
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	path := filepath.Join(dir, name+".pem")
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

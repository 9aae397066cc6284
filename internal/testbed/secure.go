package testbed

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Certs are the certificates of a server and of its clients, by an authority
// of their own: files in PEM, which are gone with the test.
type Certs struct {
	CA                    string // the authority's certificate
	ServerCert, ServerKey string // for 127.0.0.1 and localhost
	Cert, Key             string // a client's
	client                *http.Client
}

// NewCerts makes an authority, a server's certificate and a client's.
func NewCerts(tb testing.TB) *Certs {
	tb.Helper()
	a := authority{tb: tb, dir: tb.TempDir()}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "testbed"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var c Certs
	c.CA, _ = a.issue("ca", a.cert)
	c.ServerCert, c.ServerKey = a.issue("server", leaf(2, "server"))
	c.Cert, c.Key = a.issue("client", leaf(3, "client"))
	c.client = a.httpClient(&c)
	return &c
}

// leaf describes a certificate that will do for a server and for a client.
// Servers that talk to themselves use the one for both.
func leaf(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

// An authority issues certificates.
type authority struct {
	tb   testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey // nil until it has issued its own
}

// issue writes a certificate and its key, and returns the files.
func (a *authority) issue(name string, c *x509.Certificate) (certFile, keyFile string) {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.check(err)
	if a.key == nil {
		a.key = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	a.check(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	a.check(err)
	return a.write(name+".pem", "CERTIFICATE", der), a.write(name+".key", "PRIVATE KEY", private)
}

func (a *authority) write(name, kind string, der []byte) string {
	a.tb.Helper()
	file := filepath.Join(a.dir, name)
	a.check(os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600))
	return file
}

// httpClient is one that shows the client's certificate.
func (a *authority) httpClient(c *Certs) *http.Client {
	a.tb.Helper()
	pair, err := tls.LoadX509KeyPair(c.Cert, c.Key)
	a.check(err)
	pool := x509.NewCertPool()
	own, err := os.ReadFile(c.CA)
	a.check(err)
	pool.AppendCertsFromPEM(own)
	return &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, Certificates: []tls.Certificate{pair}},
	}}
}

func (a *authority) check(err error) {
	a.tb.Helper()
	if err != nil {
		a.tb.Fatalf("testbed: certificates: %v", err)
	}
}

// url is that of a server, with what a client needs.
func (c *Certs) url(scheme, addr string) string {
	q := url.Values{"ca": {c.CA}, "cert": {c.Cert}, "key": {c.Key}}
	return fmt.Sprintf("%ss://%s?%s", scheme, addr, q.Encode())
}

// TLS has an etcd or a Consul speak TLS only, and ask clients for a certificate
// of the same authority. The server's URL names the files.
func TLS(c *Certs) Option { return func(o *options) { o.certs = c } }

// ACL has a Consul refuse whatever no rule allows. management is the secret
// of the token that may do everything, a UUID.
func ACL(management string) Option { return func(o *options) { o.management = management } }

// httpSite is where a server of these options answers to HTTP.
func (o options) httpSite(addr string) site {
	s := site{client: httpClient, base: "http://" + addr, token: o.management}
	if o.certs != nil {
		s.client, s.base = o.certs.client, "https://"+addr
	}
	return s
}

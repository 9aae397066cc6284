// Package tlsurl reads the parameters of URLs for TLS. They have the same names
// and the same meaning in all drivers. It is not part of package driver, so that
// programs without a network store need not link crypto/tls.
package tlsurl

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/lockerproject/locker/driver"
)

// files are the parameters that have a meaning only with TLS.
type files struct {
	ca, cert, key, serverName string
	insecure                  bool
}

// Config reads the parameters tls, ca, cert, key, server_name and
// insecure_skip_verify, and the files that they name. It returns nil without TLS.
// If always is set, the scheme itself means TLS. u.Done returns the errors.
//
// Without server_name the certificate has to be for the host: clients that do
// not set ServerName by themselves use [ForHost].
func Config(u *driver.URL, always bool) *tls.Config {
	on := u.Bool("tls", always)
	f := files{
		ca: u.Param("ca", ""), cert: u.Param("cert", ""), key: u.Param("key", ""),
		serverName: u.Param("server_name", ""), insecure: u.Bool("insecure_skip_verify", false),
	}
	switch {
	case always && !on:
		u.Refuse(fmt.Errorf("parameter tls=false: the scheme %s:// means TLS", u.Scheme))
	case !on:
		u.Refuse(f.useless())
	case on:
		c, err := f.config()
		u.Refuse(err)
		return c
	}
	return nil
}

// useless is the error of a parameter that would be ignored silently, since it has
// no meaning without TLS.
func (f files) useless() error {
	var name string
	switch {
	case f.ca != "":
		name = "ca"
	case f.cert != "":
		name = "cert"
	case f.key != "":
		name = "key"
	case f.serverName != "":
		name = "server_name"
	case f.insecure:
		name = "insecure_skip_verify"
	default:
		return nil
	}
	return fmt.Errorf("parameter %s is for TLS: want tls=true with it", name)
}

func (f files) config() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: f.serverName,
		InsecureSkipVerify: f.insecure, //nolint:gosec // asked for by name
	}
	if f.ca != "" && f.insecure {
		return nil, errors.New("parameter insecure_skip_verify=true: nothing is verified with it, and ca has no meaning: want one of them")
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("parameter ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("parameter ca: file %s holds no certificate in PEM", f.ca)
		}
	}
	if f.cert == "" && f.key == "" {
		return c, nil
	}
	pair, err := f.pair()
	if err != nil {
		return nil, err
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}

// pair reads the client's own certificate.
func (f files) pair() (pair tls.Certificate, err error) {
	if f.cert == "" || f.key == "" {
		return pair, errors.New("parameters cert and key: want both or neither")
	}
	cert, err := os.ReadFile(f.cert)
	if err != nil {
		return pair, fmt.Errorf("parameter cert: %w", err)
	}
	key, err := os.ReadFile(f.key)
	if err != nil {
		return pair, fmt.Errorf("parameter key: %w", err)
	}
	if pair, err = tls.X509KeyPair(cert, key); err != nil {
		return pair, fmt.Errorf("parameters cert and key: files %s and %s: %w", f.cert, f.key, err)
	}
	return pair, nil
}

// ForHost returns c for a connection to address. The certificate has to be for the
// host in address, unless c names another. Nil stays nil.
func ForHost(c *tls.Config, address string) *tls.Config {
	if c == nil || c.ServerName != "" {
		return c
	}
	c = c.Clone()
	if host, _, err := net.SplitHostPort(address); err == nil {
		c.ServerName = host
	}
	return c
}

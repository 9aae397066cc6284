package testbed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockerproject/locker/conformance/link"
)

// Proxy is a [link.Proxy] on a port that is reserved for it.
type Proxy struct {
	*link.Proxy

	url string
}

// NewProxy returns a proxy in front of target (host:port), which ends with tb.
// [Server.Proxy] is the usual way to one.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	return &Proxy{Proxy: link.Listen(tb, fmt.Sprintf("127.0.0.1:%d", Port(tb)), target)}
}

// URL returns the server's URL with the proxy's address in place of the
// server's, or "" when [NewProxy] was given only an address.
func (p *Proxy) URL() string { return p.url }

// ProxySet is one proxy before each member of an ensemble, in the order of the members.
type ProxySet struct {
	link.Proxies
	url func(addrs string) string
}

// URL returns the ensemble's URL with the proxies' addresses.
func (s *ProxySet) URL() string { return s.url(strings.Join(s.Addrs(), ",")) }

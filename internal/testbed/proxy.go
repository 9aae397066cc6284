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

// ProxySet is one [Proxy] before each member of an ensemble.
type ProxySet struct {
	Proxies []*Proxy // in the order of the ensemble's members
	url     func(addrs string) string
}

// URL returns the ensemble's URL with the proxies' addresses.
func (s *ProxySet) URL() string { return s.url(strings.Join(s.Addrs(), ",")) }

// Addrs returns the proxies' addresses.
func (s *ProxySet) Addrs() []string {
	addrs := make([]string, len(s.Proxies))
	for i, p := range s.Proxies {
		addrs[i] = p.Addr()
	}
	return addrs
}

// Cut cuts every proxy.
func (s *ProxySet) Cut() { s.each((*Proxy).Cut) }

// Refuse makes every proxy refuse connections.
func (s *ProxySet) Refuse() { s.each((*Proxy).Refuse) }

// Reset resets the connections of every proxy.
func (s *ProxySet) Reset() { s.each((*Proxy).Reset) }

// Heal heals every proxy.
func (s *ProxySet) Heal() { s.each((*Proxy).Heal) }

func (s *ProxySet) each(f func(*Proxy)) {
	for _, p := range s.Proxies {
		f(p)
	}
}

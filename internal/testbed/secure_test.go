package testbed

import (
	"errors"
	"net/http"
	"strings"
	"testing"
)

// A server with TLS answers only to who shows a certificate, also after a restart.
func TestTLS(t *testing.T) {
	for _, c := range []struct {
		kind  *kind
		start func(testing.TB, ...Option) *Server
		path  string
	}{{etcd, Etcd, "/health"}, {consul, Consul, "/v1/status/leader"}} {
		t.Run(c.kind.name, func(t *testing.T) {
			need(t, c.kind)
			t.Parallel()
			certs := NewCerts(t)
			s := c.start(t, TLS(certs))
			s.Restart()
			if _, err := s.opts.httpSite(s.addr).do(t0, http.MethodGet, c.path, ""); err != nil {
				t.Error(err)
			}
			certs.client.Transport.(*http.Transport).TLSClientConfig.Certificates = nil
			for _, base := range []string{"http://", "https://"} {
				anonymous := site{client: certs.client, base: base + s.addr}
				if body, err := anonymous.do(t0, http.MethodGet, c.path, ""); err == nil {
					t.Errorf("%s without a certificate: %s", base, body)
				}
			}
			if want := c.kind.scheme + "s://" + s.addr + "?ca="; !strings.HasPrefix(s.URL(), want) {
				t.Errorf("URL %q, want %s…", s.URL(), want)
			}
		})
	}
}

func TestACL(t *testing.T) {
	need(t, consul)
	t.Parallel()
	s := Consul(t, ACL("11111111-2222-3333-4444-555555555555"))
	if _, err := s.opts.httpSite(s.addr).do(t0, http.MethodPut, "/v1/kv/k", "v"); err != nil {
		t.Error(err)
	}
	if _, err := httpDo(t0, http.MethodPut, "http://"+s.addr+"/v1/kv/k", "v"); err == nil {
		t.Error("written without a token")
	}
}

func TestNoTLS(t *testing.T) {
	f := &fakeTB{TB: t}
	defer func() {
		if err, _ := recover().(error); !errors.Is(err, errFake) || !strings.Contains(f.failed, "etcd and Consul") {
			t.Errorf("%v, %q: want a failure that says what can have TLS", err, f.failed)
		}
	}()
	Redis(f, TLS(&Certs{}))
}

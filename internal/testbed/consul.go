package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

var consul = &kind{
	name:   "consul",
	scheme: "consul",
	ports:  3,
	find:   func() (string, error) { return lookup([]string{"consul"}, "/usr/local/bin") },
	command: func(n *node) *exec.Cmd {
		args := []string{
			"agent", "-node", fmt.Sprintf("n%d", n.ports[0]), "-client", n.host(), "-bind", n.host(),
			"-server-port", strconv.Itoa(n.ports[1]), "-serf-lan-port", strconv.Itoa(n.ports[2]),
			"-dns-port", "-1", "-grpc-port", "-1", "-grpc-tls-port", "-1", "-serf-wan-port", "-1", "-log-level", "error",
			// The agent counts connections by address, and a test's all come from
			// one. The limit must be below that of open files, often 20,000.
			"-hcl", "limits{http_max_conns_per_client=15000}",
		}
		args = append(args, consulSecurity(n)...)
		switch {
		case len(n.args) > 0:
			args = append(args, n.args...)
		case n.opts.durable:
			args = append(args, "-server", "-bootstrap-expect", "1")
		default:
			args = append(args, "-dev")
		}
		if len(n.args) > 0 || n.opts.durable {
			args = append(args, "-data-dir", n.dir,
				"-hcl", "performance{raft_multiplier=1}",
				// Else a member that was down has no vote for its first ten seconds.
				"-hcl", "autopilot{cleanup_dead_servers=false}")
		}
		return exec.Command(n.bin, append(args, n.opts.args...)...)
	},
	ready:   func(ctx context.Context, addr string, o options) error { return consulHas(ctx, addr, 1, o) },
	secures: true,
}

// consulSecurity has the agent answer on its first port as the options say.
func consulSecurity(n *node) (args []string) {
	port := strconv.Itoa(n.ports[0])
	if c := n.opts.certs; c != nil {
		args = append(args, "-http-port", "-1", "-https-port", port, "-hcl", fmt.Sprintf(
			"tls{https{ca_file=%q,cert_file=%q,key_file=%q,verify_incoming=true}}", c.CA, c.ServerCert, c.ServerKey))
	} else {
		args = append(args, "-http-port", port)
	}
	if secret := n.opts.management; secret != "" {
		// The agent's own token, without which it cannot say that it is healthy.
		args = append(args, "-hcl", fmt.Sprintf(
			`acl{enabled=true,default_policy="deny",tokens{initial_management=%q,agent=%q}}`, secret, secret))
	}
	return args
}

// consulHas asks for n nodes in good health: with fewer there is a leader but
// no session can be made yet.
func consulHas(ctx context.Context, addr string, n int, o options) error {
	body, err := o.httpSite(addr).do(ctx, http.MethodGet, "/v1/health/state/passing", "")
	if err == nil && strings.Count(body, `"serfHealth"`) < n {
		err = errors.New("a node is not known to be healthy")
	}
	return err
}

// Consul starts a Consul agent for this test alone. It is a server in
// development mode, which starts in a fifth of a second and forgets everything
// when it is killed; a [Durable] one takes over a second and forgets nothing.
var Consul = consul.private

// SharedConsul returns the Consul agent that all tests of this process share.
var SharedConsul = consul.share

// ConsulCluster starts three Consul servers, which
// keep what they are told. Each is an agent for clients, too.
func ConsulCluster(tb testing.TB, opts ...Option) *Ensemble {
	tb.Helper()
	raft := map[string]string{} // by the clients' address
	e := newEnsemble(tb, consul, 3, opts, func(nodes []*node) {
		for _, n := range nodes {
			raft[n.addr(0)] = strconv.Quote(n.addr(1))
			n.args = []string{"-server", "-bootstrap-expect", strconv.Itoa(len(nodes)), "-retry-interval", "200ms"}
			for _, other := range nodes {
				if other != n {
					n.args = append(n.args, "-retry-join", other.addr(2))
				}
			}
		}
	})
	e.leads = func(ctx context.Context, addr string) (bool, error) {
		// Not /v1/agent/self: that asks the other members, and so may hang for half
		// a minute on one that is paused.
		body, err := httpDo(ctx, http.MethodGet, "http://"+addr+"/v1/status/leader", "")
		return strings.TrimSpace(body) == raft[addr], err
	}
	e.begin()
	e.until("see each other", func(ctx context.Context) bool {
		for _, s := range e.Members {
			if consulHas(ctx, s.addr, len(e.Members), options{}) != nil {
				return false
			}
		}
		return true
	})
	return e
}

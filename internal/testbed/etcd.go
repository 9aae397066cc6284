package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

var etcd = &kind{
	name:   "etcd",
	scheme: "etcd",
	ports:  2,
	// Debian's is 3.4, too old; the folder of our own builds comes first.
	find: func() (string, error) { return lookup([]string{"etcd"}, "/usr/local/bin") },
	command: func(n *node) *exec.Cmd {
		client, peer := "http://"+n.addr(0), "http://"+n.addr(1)
		if n.opts.certs != nil {
			client = strings.Replace(client, "http:", "https:", 1)
		}
		args := []string{
			"--name", etcdName(n), "--data-dir", n.dir + "/data", "--log-level", "error",
			"--listen-client-urls", client, "--advertise-client-urls", client,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		}
		if c := n.opts.certs; c != nil {
			args = append(args, "--cert-file", c.ServerCert, "--key-file", c.ServerKey,
				"--client-cert-auth", "--trusted-ca-file", c.CA)
		}
		if !n.opts.durable {
			args = append(args, "--unsafe-no-fsync")
		}
		if len(n.args) == 0 { // alone
			args = append(args, "--initial-cluster", etcdName(n)+"="+peer)
			if !n.opts.durable { // it elects itself, and need not take half a second over it
				args = append(args, "--heartbeat-interval", "10", "--election-timeout", "100")
			}
		}
		return exec.Command(n.bin, append(append(args, n.args...), n.opts.args...)...)
	},
	ready:   etcdReady,
	secures: true,
}

func etcdReady(ctx context.Context, addr string, o options) error {
	body, err := o.httpSite(addr).do(ctx, http.MethodGet, "/health", "")
	if err == nil && !strings.Contains(body, `"true"`) {
		err = errors.New(body)
	}
	return err
}

func etcdName(n *node) string { return fmt.Sprintf("n%d", n.ports[0]) }

// Etcd starts an etcd of one member for this test alone. Unless it is
// [Durable] its shortest lease is one second, not two, since that follows from
// the election timeout.
var Etcd = etcd.private

// SharedEtcd returns the etcd that all tests of this process share.
var SharedEtcd = etcd.share

// EtcdCluster starts an etcd of three members. A
// leader that is silent for half a second is replaced.
func EtcdCluster(tb testing.TB, opts ...Option) *Ensemble {
	tb.Helper()
	e := newEnsemble(tb, etcd, 3, opts, func(nodes []*node) {
		var peers []string
		for _, n := range nodes {
			peers = append(peers, etcdName(n)+"=http://"+n.addr(1))
		}
		for _, n := range nodes {
			n.args = []string{
				"--initial-cluster", strings.Join(peers, ","),
				"--heartbeat-interval", "50", "--election-timeout", "500",
			}
		}
	})
	e.leads = func(ctx context.Context, addr string) (bool, error) {
		var status struct {
			Leader string
			Header struct {
				Member string `json:"member_id"`
			}
		}
		body, err := httpDo(ctx, http.MethodPost, "http://"+addr+"/v3/maintenance/status", "{}")
		if err == nil {
			err = json.Unmarshal([]byte(body), &status)
		}
		return status.Leader != "" && status.Leader == status.Header.Member, err
	}
	e.begin()
	return e
}

package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var nats = &kind{
	name:    "nats",
	scheme:  "nats",
	ports:   3, // for clients, for monitoring, for the other servers
	find:    func() (string, error) { return lookup([]string{"nats-server"}, "/usr/local/bin") },
	prepare: writeNatsConf,
	command: func(n *node) *exec.Cmd {
		return exec.Command(n.bin, "-c", filepath.Join(n.dir, "nats.conf"))
	},
	ready: natsReady,
}

func writeNatsConf(n *node) error {
	addr := n.addr(0)
	sync := "sync_interval: 1h" // that of two minutes stops a server for seconds on a busy disk
	if n.opts.durable {
		sync = "sync_interval: always"
	}
	lines := append([]string{
		"server_name: " + NatsName(addr),
		"listen: " + addr,
		"http: " + n.addr(1),
		fmt.Sprintf("jetstream { store_dir: %q, %s }", filepath.Join(n.dir, "js"), sync),
		"max_connections: 15000",
	}, append(n.conf, n.opts.args...)...)
	return os.WriteFile(filepath.Join(n.dir, "nats.conf"), []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}

// natsReady asks for JetStream, if the server has it and lets everybody in.
func natsReady(ctx context.Context, addr string, _ options) error {
	c, err := dialContext(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	r := bufio.NewReader(c)
	info, err := r.ReadString('\n')
	if err != nil {
		return err
	}
	if !strings.Contains(info, `"jetstream":true`) || strings.Contains(info, `"auth_required":true`) || strings.Contains(info, `"tls_required":true`) {
		return nil
	}
	if _, err := c.Write([]byte("CONNECT {\"verbose\":false}\r\nSUB ready 1\r\nPUB $JS.API.INFO ready 0\r\n\r\n")); err != nil {
		return err
	}
	for {
		line, err := r.ReadString('\n')
		switch {
		case err != nil:
			return err
		case strings.Contains(line, `"error":`) || strings.HasPrefix(line, "-ERR"):
			return errors.New(line)
		case strings.HasPrefix(line, "{"):
			return nil
		}
	}
}

// Nats starts a NATS server with JetStream for this test alone. [Args] are lines of its configuration file, such
// as "jetstream: disabled".
var Nats = nats.private

// SharedNats returns the NATS server that all tests of this process share.
var SharedNats = nats.share

// NatsCluster starts three NATS servers with JetStream. The one that leads is that
// which makes buckets; each bucket has a leader of its own.
func NatsCluster(tb testing.TB, opts ...Option) *Ensemble {
	tb.Helper()
	monitors := map[string]string{} // by the clients' address
	e := newEnsemble(tb, nats, 3, opts, func(nodes []*node) {
		var routes []string
		for _, n := range nodes {
			monitors[n.addr(0)] = n.addr(1)
			routes = append(routes, "nats://"+n.addr(2))
		}
		for _, n := range nodes {
			n.conf = []string{fmt.Sprintf("cluster { name: locker, listen: %q, routes: [%s] }", n.addr(2), strings.Join(routes, ", "))}
		}
	})
	e.leads = func(ctx context.Context, addr string) (bool, error) {
		var jsz struct {
			Meta struct{ Leader string } `json:"meta_cluster"`
		}
		body, err := httpDo(ctx, http.MethodGet, "http://"+monitors[addr]+"/jsz", "")
		if err == nil {
			err = json.Unmarshal([]byte(body), &jsz)
		}
		return jsz.Meta.Leader != "" && jsz.Meta.Leader == NatsName(addr), err
	}
	e.begin()
	return e
}

// NatsName is the name of the server at an address, by which the servers speak of each other.
func NatsName(addr string) string {
	_, port, _ := strings.Cut(addr, ":")
	return "n" + port
}

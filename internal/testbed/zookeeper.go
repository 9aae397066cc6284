package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// zookeeperJar is where Debian has it; it names the jars that it needs, but for the one
// that TLS needs.
const (
	zookeeperJar = "/usr/share/java/zookeeper.jar"
	nettyJar     = "/usr/share/java/netty-codec.jar"
)

var zookeeper = &kind{
	name:    "zookeeper",
	scheme:  "zookeeper",
	ports:   3,
	find:    findZookeeper,
	prepare: writeZooCfg,
	command: func(n *node) *exec.Cmd {
		// A small heap and the quick compiler: a test's server lives for seconds.
		args := []string{"-Xms32m", "-Xmx256m", "-XX:+UseSerialGC", "-Xshare:auto"}
		if n.opts.durable {
			args = []string{"-Xmx512m"}
		} else {
			args = append(args, "-XX:TieredStopAtLevel=1", "-Dzookeeper.forceSync=no")
		}
		args = append(args,
			"-Dzookeeper.extendedTypesEnabled=true", "-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.preAllocSize=1024",
			"-cp", n.dir+":"+zookeeperJar+":"+nettyJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", n.dir+"/zoo.cfg")
		return exec.Command(n.bin, args...)
	},
	ready: func(ctx context.Context, addr string, _ options) error {
		_, err := zookeeperMode(ctx, addr)
		return err
	},
}

func findZookeeper() (string, error) {
	java, err := lookup([]string{"java"}, filepath.Join(os.Getenv("JAVA_HOME"), "bin"))
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(zookeeperJar); err != nil {
		return "", errors.New(zookeeperJar + " is not on this machine")
	}
	return java, nil
}

func writeZooCfg(n *node) error {
	lines := []string{
		"tickTime=500", "initLimit=20", "syncLimit=4",
		"dataDir=" + n.dir, fmt.Sprintf("clientPort=%d", n.ports[0]), "clientPortAddress=" + n.host(),
		"maxClientCnxns=0", "admin.enableServer=false", "4lw.commands.whitelist=*",
	}
	lines = append(append(lines, n.conf...), n.opts.args...)
	for name, text := range map[string]string{
		"zoo.cfg": strings.Join(lines, "\n") + "\n",
		"log4j.properties": "log4j.rootLogger=WARN, c\nlog4j.appender.c=org.apache.log4j.ConsoleAppender\n" +
			"log4j.appender.c.layout=org.apache.log4j.PatternLayout\nlog4j.appender.c.layout.ConversionPattern=%d %p %m%n\n",
	} {
		if err := os.WriteFile(filepath.Join(n.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Zookeeper starts a ZooKeeper for this test alone, with a tick of 500 ms:
// sessions last from one second to ten. [Args] are lines of zoo.cfg, such as
// "maxSessionTimeout=60000".
var Zookeeper = zookeeper.private

// SharedZookeeper returns the ZooKeeper that all tests of this process share.
var SharedZookeeper = zookeeper.share

// ZookeeperEnsemble starts a ZooKeeper of three members.
func ZookeeperEnsemble(tb testing.TB, opts ...Option) *Ensemble {
	tb.Helper()
	var failed error
	e := newEnsemble(tb, zookeeper, 3, opts, func(nodes []*node) {
		var servers []string
		for i, n := range nodes {
			servers = append(servers, fmt.Sprintf("server.%d=%s:%d:%d", i+1, n.host(), n.ports[1], n.ports[2]))
		}
		for i, n := range nodes {
			n.conf = servers
			failed = errors.Join(failed, os.WriteFile(filepath.Join(n.dir, "myid"), fmt.Appendln(nil, i+1), 0o600))
		}
	})
	if failed != nil {
		tb.Fatalf("testbed: zookeeper: %v", failed)
	}
	e.leads = func(ctx context.Context, addr string) (bool, error) {
		mode, err := zookeeperMode(ctx, addr)
		return mode == "leader", err
	}
	e.begin()
	return e
}

// zookeeperMode returns standalone, leader or follower; an error while the
// server accepts connections and does not serve, as it does for a moment.
func zookeeperMode(ctx context.Context, addr string) (string, error) {
	out, err := ask(ctx, addr, "srvr")
	if err != nil {
		return "", err
	}
	if _, mode, ok := strings.Cut(out, "\nMode: "); ok {
		mode, _, _ = strings.Cut(mode, "\n")
		return mode, nil
	}
	return "", fmt.Errorf("it answers %q", out)
}

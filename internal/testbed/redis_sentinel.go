package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Sentinel is a Redis primary with replicas, under sentinels that make a
// replica the primary within about two seconds of the primary's silence.
// [Ensemble.Leader] is the primary of the moment; Members[0] is it at first.
type Sentinel struct {
	*Ensemble
	Sentinels []*Server
}

// sentinelMaster is the name that the sentinels know the primary by.
const sentinelMaster = "mymaster"

var redisSentinel = &kind{
	name:   "redis",
	scheme: "redis+sentinel",
	ports:  1,
	find:   redis.find,
	// Sentinels keep what they learn in their configuration file.
	prepare: func(n *node) error {
		text := fmt.Sprintf("port %d\nbind %s\nprotected-mode no\ndir %s\n%s\n", n.ports[0], n.host(), n.dir, strings.Join(n.conf, "\n"))
		return os.WriteFile(filepath.Join(n.dir, "sentinel.conf"), []byte(text), 0o600)
	},
	command: func(n *node) *exec.Cmd {
		return exec.Command(n.bin, filepath.Join(n.dir, "sentinel.conf"), "--sentinel")
	},
	ready: redis.ready,
	url:   func(addrs string) string { return "redis+sentinel://" + addrs + "/" + sentinelMaster },
}

// RedisSentinel starts a primary, one replica and three sentinels. Its URL is of the form
// redis+sentinel://sentinel,sentinel,sentinel/mymaster.
func RedisSentinel(tb testing.TB, opts ...Option) *Sentinel {
	tb.Helper()
	o := newOptions(opts)
	const sentinels, replicas = 3, 1
	e := newEnsemble(tb, redis, 1+replicas, opts, replicaOfFirst)
	e.begin()
	primary := e.Members[0].addr
	watchers := newEnsemble(tb, redisSentinel, sentinels, []Option{Places(o.places...)}, func(nodes []*node) {
		for _, n := range nodes {
			n.conf = sentinelConf(primary, sentinels/2+1)
		}
	})
	watchers.begin()
	s := &Sentinel{Ensemble: e, Sentinels: watchers.Members}
	e.url = func(string) string { return watchers.URL() }
	e.leads = s.isPrimary
	s.shortenIntervals()
	e.until("know each other", func(ctx context.Context) bool {
		return e.all(ctx, e.Members[1:], replicaLinked) &&
			e.all(ctx, s.Sentinels, s.knows("num-slaves", replicas)) &&
			e.all(ctx, s.Sentinels, s.knows("num-other-sentinels", sentinels-1))
	})
	return s
}

func replicaOfFirst(nodes []*node) {
	for i, n := range nodes {
		n.args = []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}
		if i > 0 {
			n.args = append(n.args, "--replicaof", nodes[0].host(), strconv.Itoa(nodes[0].ports[0]))
		}
	}
}

func sentinelConf(primary string, quorum int) []string {
	hostPort := strings.Replace(primary, ":", " ", 1)
	return []string{
		fmt.Sprintf("sentinel monitor %s %s %d", sentinelMaster, hostPort, quorum),
		"sentinel down-after-milliseconds " + sentinelMaster + " 500",
		"sentinel failover-timeout " + sentinelMaster + " 3000",
	}
}

// shortenIntervals shortens the sentinels' intervals, most of which are seconds. Those of
// Redis before 7 cannot be told, and take their time.
func (s *Sentinel) shortenIntervals() {
	for _, w := range s.Sentinels {
		for _, period := range []string{"info-period", "publish-period"} {
			_, _ = redisCall(context.Background(), w.addr, "SENTINEL", "DEBUG", period, "100")
		}
	}
}

// knows checks one number in what a sentinel says of the primary.
func (s *Sentinel) knows(field string, n int) redisCheck {
	want := fmt.Sprintf("\n%s\n%d\n", field, n)
	return replyHas(want, "SENTINEL", "MASTER", sentinelMaster)
}

// isPrimary asks the server itself and the sentinels: after a failover the
// former primary still takes itself for one, until they tell it otherwise.
func (s *Sentinel) isPrimary(ctx context.Context, addr string) (bool, error) {
	role, err := redisCall(ctx, addr, "ROLE")
	if err != nil || !strings.HasPrefix(role, "master") {
		return false, err
	}
	for _, w := range s.Sentinels {
		named, err := redisCall(ctx, w.addr, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", sentinelMaster)
		if err == nil {
			return strings.Replace(named, "\n", ":", 1) == addr, nil
		}
	}
	return false, nil
}

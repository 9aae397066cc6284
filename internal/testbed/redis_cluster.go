package testbed

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// redisClusterKind is a Redis with a second port, for the cluster's own talk.
var redisClusterKind = func() *kind {
	k := *redis
	k.scheme, k.ports = "redis+cluster", 2
	return &k
}()

const redisSlots = 16384

// RedisCluster starts a Redis Cluster of three masters, which are the first
// members, and of [Replicas] for each: member 3+i is a replica of master i%3. A
// member that is silent for a second is held to be down. It takes about three seconds.
func RedisCluster(tb testing.TB, opts ...Option) *Ensemble {
	tb.Helper()
	const masters = 3
	n := masters * (1 + newOptions(opts).replicas)
	var nodes []*node
	e := newEnsemble(tb, redisClusterKind, n, opts, func(list []*node) {
		nodes = list
		for _, n := range nodes {
			n.args = []string{
				"--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
				"--cluster-port", strconv.Itoa(n.ports[1]), "--repl-diskless-sync-delay", "0",
			}
		}
	})
	e.begin()
	e.shareSlots(masters)
	e.meet(nodes)
	e.until("meet", func(ctx context.Context) bool { return e.all(ctx, e.Members, clusterHas(len(nodes))) })
	e.replicate(masters)
	e.until("be complete", func(ctx context.Context) bool {
		return e.all(ctx, e.Members[:masters], clusterOK) && e.all(ctx, e.Members[masters:], replicaLinked) &&
			e.all(ctx, e.Members, clusterOK)
	})
	return e
}

func (e *Ensemble) shareSlots(masters int) {
	e.tb.Helper()
	for i, s := range e.Members {
		// Distinct epochs from the start, so that masters need not settle them.
		e.redis(s, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			first, last := i*redisSlots/masters, (i+1)*redisSlots/masters-1
			e.redis(s, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(last))
		}
	}
}

func (e *Ensemble) meet(nodes []*node) {
	e.tb.Helper()
	for _, s := range e.Members[1:] {
		e.redis(s, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(nodes[0].ports[0]), strconv.Itoa(nodes[0].ports[1]))
	}
}

func (e *Ensemble) replicate(masters int) {
	e.tb.Helper()
	for i, s := range e.Members[masters:] {
		id := e.redis(e.Members[i%masters], "CLUSTER", "MYID")
		e.redis(s, "CLUSTER", "REPLICATE", id)
	}
}

// redis sends a command that must succeed.
func (e *Ensemble) redis(s *Server, args ...string) string {
	e.tb.Helper()
	out, err := redisCall(context.Background(), s.addr, args...)
	if err != nil {
		e.tb.Fatalf("testbed: %s: %s: %v", s.addr, strings.Join(args, " "), err)
	}
	return out
}

// A redisCheck asks one server whether it is as it should be.
type redisCheck func(ctx context.Context, addr string) bool

func (e *Ensemble) all(ctx context.Context, list []*Server, ok redisCheck) bool {
	for _, s := range list {
		if !ok(ctx, s.addr) {
			return false
		}
	}
	return true
}

// replyHas is true when the answer to a command holds want.
func replyHas(want string, args ...string) redisCheck {
	return func(ctx context.Context, addr string) bool {
		out, err := redisCall(ctx, addr, args...)
		return err == nil && strings.Contains(out, want)
	}
}

func clusterHas(n int) redisCheck {
	return replyHas(fmt.Sprintf("cluster_known_nodes:%d\r", n), "CLUSTER", "INFO")
}

var (
	clusterOK     = replyHas("cluster_state:ok", "CLUSTER", "INFO")
	replicaLinked = replyHas("connected", "ROLE")
)

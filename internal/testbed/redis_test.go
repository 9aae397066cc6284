package testbed

import (
	"context"
	"strings"
	"testing"
)

func TestRedis(t *testing.T) {
	need(t, redis)
	t.Parallel()
	testServer(t, redis, Redis(t))
}

func TestRedisDurable(t *testing.T) {
	need(t, redis)
	t.Parallel()
	s := Redis(t, Durable())
	if _, err := redisCall(t0, s.Addr(), "SET", "k", "v"); err != nil {
		t.Fatal(err)
	}
	s.Restart()
	if got, err := redisCall(t0, s.Addr(), "GET", "k"); got != "v" || err != nil {
		t.Errorf("after a restart: %q, %v", got, err)
	}
}

func TestRedisPassword(t *testing.T) {
	need(t, redis)
	t.Parallel()
	s := Redis(t, Args("--requirepass", "secret"))
	if _, err := redisCall(t0, s.Addr(), "GET", "k"); err == nil {
		t.Error("no password was asked for")
	}
}

func TestSharedRedis(t *testing.T) {
	need(t, redis)
	t.Parallel()
	if a, b := SharedRedis(t), SharedRedis(t); a.Addr() != b.Addr() {
		t.Errorf("two servers: %s, %s", a.Addr(), b.Addr())
	}
}

func TestRedisN(t *testing.T) {
	need(t, redis)
	t.Parallel()
	e := RedisN(t, 5)
	e.Members[3].Kill()
	for i, s := range e.Members {
		if err := answers(redis, s.Addr()); (err != nil) != (i == 3) {
			t.Errorf("member %d: %v", i, err)
		}
	}
	set := e.Proxies(t)
	alive(t, redis, set.Proxies[0].Addr())
	set.Cut()
	silent(t, redis, set.Proxies[0].Addr())
	set.Heal()
	alive(t, redis, set.Proxies[0].Addr())
}

func TestRedisCluster(t *testing.T) {
	need(t, redis)
	Nightly(t, "run it after a change to how clusters are started")
	t.Parallel()
	e := RedisCluster(t, Replicas(1))
	if len(e.Members) != 6 || !strings.HasPrefix(e.URL(), "redis+cluster://") {
		t.Fatalf("%d members, URL %s", len(e.Members), e.URL())
	}
	shards := e.redis(e.Members[5], "CLUSTER", "SHARDS")
	for _, s := range e.Members {
		if _, port, _ := strings.Cut(s.Addr(), ":"); !strings.Contains(shards, port) {
			t.Errorf("no member at %s in\n%s", s.Addr(), shards)
		}
	}
	e.Members[0].Kill()
	e.until("replace the lost master", func(ctx context.Context) bool {
		return replyHas("master", "ROLE")(ctx, e.Members[3].Addr())
	})
	e.Members[0].Start()
}

func TestRedisSentinel(t *testing.T) {
	need(t, redis)
	Nightly(t, "run it after a change to how clusters are started")
	t.Parallel()
	s := RedisSentinel(t)
	first := s.Leader()
	if first != s.Members[0] {
		t.Fatalf("the primary at first is %s", first.Addr())
	}
	first.Pause()
	s.until("elect another primary", func(ctx context.Context) bool { l := s.leader(ctx); return l == s.Members[1] })
	first.Resume()
	s.until("demote the former primary", func(ctx context.Context) bool {
		return replyHas("slave", "ROLE")(ctx, first.Addr())
	})
}

package testbed

import (
	"testing"
)

func TestRedis(t *testing.T) {
	need(t, redis)
	testServer(t, redis, Redis(t))
}

func TestRedisDurable(t *testing.T) {
	need(t, redis)
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
	s := Redis(t, Args("--requirepass", "secret"))
	if _, err := redisCall(t0, s.Addr(), "GET", "k"); err == nil {
		t.Error("no password was asked for")
	}
}

func TestSharedRedis(t *testing.T) {
	need(t, redis)
	if a, b := SharedRedis(t), SharedRedis(t); a.Addr() != b.Addr() {
		t.Errorf("two servers: %s, %s", a.Addr(), b.Addr())
	}
}

func TestRedisN(t *testing.T) {
	need(t, redis)
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

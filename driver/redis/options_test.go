package redis_test

import (
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	c := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer c.Close()
	var none *goredis.Client
	for part, f := range map[string]func() (*redis.Driver, error){
		"client is nil":   func() (*redis.Driver, error) { return redis.New(nil) },
		"is nil":          func() (*redis.Driver, error) { return redis.New(none) },
		"prefix":          func() (*redis.Driver, error) { return redis.New(c, redis.WithPrefix("a{b")) },
		"-1 replicas":     func() (*redis.Driver, error) { return redis.New(c, redis.WithReplicas(-1, time.Second)) },
		"replica timeout": func() (*redis.Driver, error) { return redis.New(c, redis.WithReplicas(1, 0)) },
	} {
		if d, err := f(); err == nil || d != nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, %v; want an error that says %q", d, err, part)
		}
	}
}

func TestString(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"redis://u:hush@h/3":                "redis h:6379/3",
		"redis+cluster://u:hush@a,b":        "redis cluster a:6379,b:6379",
		"redis+sentinel://u:hush@a,b/m/2":   "redis sentinel a:26379,b:26379/m/2",
		"rediss://u:hush@h:1?prefix=mylock": "redis h:1/0",
	} {
		u, err := driver.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		d, err := driver.Open(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.(*redis.Driver).String(); got != want {
			t.Errorf("%s is called %q, want %q", url, got, want)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	c := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	defer c.Close()
	d, err := redis.New(c, nil, redis.WithPrefix("app"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for name, want := range map[string]string{"a": "app:{a}", "}a": "app:{%7Da}", "%7Da": "app:{%257Da}"} {
		if got := d.Key(name); got != want {
			t.Errorf("the key of %q is %q, want %q", name, got, want)
		}
	}
}

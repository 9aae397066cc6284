package redlock_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	one := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
	two := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:2"})
	three := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:3"})
	cluster := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: []string{"127.0.0.1:4"}})
	for _, c := range []goredis.UniversalClient{one, two, three, cluster} {
		defer c.Close()
	}
	type list = []goredis.UniversalClient
	var null *goredis.Client
	for _, c := range []struct {
		clients list
		opts    []redlock.Option
		want    string
	}{
		{nil, nil, "0 nodes: want at least 3"},
		{list{one, two}, nil, "2 nodes: want at least 3"},
		{list{one, two, nil}, nil, "client 3 is nil"},
		{list{one, null, two}, nil, "client 2 is nil"},
		{list{one, two, cluster}, nil, "client 3 is a *redis.ClusterClient"},
		{list{one, two, one}, nil, "clients 1 and 3 are of the same server 127.0.0.1:1"},
		{list{one, two, three}, []redlock.Option{redlock.WithPrefix("{")}, `prefix "{"`},
		{list{one, two, three}, []redlock.Option{redlock.WithNodeTimeout(0)}, "node timeout 0s: want at least 1ms"},
		{list{one, two, three}, []redlock.Option{redlock.WithDrift(-1)}, "drift -1"},
	} {
		if _, err := redlock.New(c.clients, c.opts...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New: %v, want %q", err, c.want)
		}
	}
	d, err := redlock.New(list{one, two, three}, nil, redlock.WithDrift(0.05))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if got := d.String(); got != "redlock 127.0.0.1:1,127.0.0.1:2,127.0.0.1:3" {
		t.Errorf("String: %s", got)
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"redlock://:secret@h1":                            "1 nodes: want at least 3",
		"redlock://:secret@h1,h2,h1":                      `host "h1:6379" is given twice`,
		"redlock://:secret@h1,h2,h3?drift=x":              `parameter drift="x"`,
		"redlock://:secret@h1,h2,h3?drift=2":              "drift 2",
		"redlock://:secret@h1,h2,h3?timeout=soon":         `parameter timeout="soon"`,
		"redlock://:secret@h1,h2,h3?prefix=%7B":           "prefix",
		"redlock://:secret@h1,h2,h3/x":                    `database "x"`,
		"redlock://:secret@h1,h2,h3?replicas=1":           `unknown parameter "replicas"`,
		"redlock://:secret@h1,h2,h3?ca=/nonexistent":      "for TLS",
		"redlock://:secret@h1,h2,h3?tls=true&ca=/missing": "parameter ca",
	} {
		_, err := locker.Open(t.Context(), address)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the password is shown: %v", err)
		}
	}
	u, err := driver.ParseURL("redlock://user:secret@h1,h2:7000,h3/2?tls=true&drift=0.02&timeout=200ms")
	if err != nil {
		t.Fatal(err)
	}
	d, err := driver.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestACL: a user with no more rights than the package comment names can do all.
func TestACL(t *testing.T) {
	t.Parallel()
	e := testbed.RedisN(t, 3)
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "resetkeys", "resetchannels", "~" + prefix + ":*", "&" + prefix + ":*", "-@all"}
	for _, c := range strings.Fields(redlock.ACLCommands) {
		rules = append(rules, "+"+c)
	}
	var admins []*goredis.Client
	for _, srv := range e.Members {
		admin := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
		t.Cleanup(func() { _ = admin.Close() })
		if err := admin.Do(t.Context(), rules...).Err(); err != nil {
			t.Fatal(err)
		}
		admins = append(admins, admin)
	}
	address := strings.Replace(e.URL(), "redlock://", "redlock://app:secret@", 1)
	c, other := client(t, address), client(t, address)
	if err := c.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for _, opts := range [][]locker.Option{nil, {locker.Limit(2)}} {
		k := take(t, c, "a", append(opts, locker.WithTTL(3*time.Second))...)
		got := queue(t, other, "a", 2)
		if err := k.Extend(t.Context(), 4*time.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := c.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		release(t, k)
		k = granted(t, got)
		if err := c.Break(t.Context(), "a", k.Token()); err != nil {
			t.Fatal(err)
		}
		<-k.Done()
	}
	for _, admin := range admins {
		if log, err := admin.Do(t.Context(), "ACL", "LOG").Slice(); err != nil || len(log) != 0 {
			t.Errorf("a server has refused: %v, %v", log, err)
		}
	}
}

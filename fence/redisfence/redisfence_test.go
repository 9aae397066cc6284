package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/internal/guardtest"
	"github.com/lockerproject/locker/fence/redisfence"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func unique() string { return fmt.Sprintf("test-%016x", rand.Uint64()) }

func dial(t *testing.T) *goredis.Client {
	t.Helper()
	c := goredis.NewClient(&goredis.Options{Addr: testbed.SharedRedis(t).Addr()})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

var (
	read  = redisfence.NewScript("return tonumber(redis.call('GET', KEYS[1]) or 0)")
	write = redisfence.NewScript("return redis.call('SET', KEYS[1], ARGV[1])")
)

// number is a resource: the text at one key.
type number struct {
	c   goredis.UniversalClient
	key string
}

func (n *number) Read(ctx context.Context, lock fence.Lock) (int, error) {
	return read.Run(ctx, n.c, lock, []string{n.key}).Int()
}

func (n *number) Write(ctx context.Context, lock fence.Lock, v int) error {
	return write.Run(ctx, n.c, lock, []string{n.key}, v).Err()
}

func (n *number) Update(ctx context.Context, lock fence.Lock, modify func(int) int) error {
	return redisfence.Update(ctx, n.c, lock, n.key, func(text string, ok bool) (string, error) {
		v, err := strconv.Atoi(text)
		if !ok {
			v, err = 0, nil
		}
		return strconv.Itoa(modify(v)), err
	})
}

func (n *number) Peek(ctx context.Context) (int, error) { return n.c.Get(ctx, n.key).Int() }

// The locks are of the same server, opened by URL.
func TestScript(t *testing.T) {
	l, err := locker.Open(t.Context(), testbed.SharedRedis(t).URL()+"?prefix="+unique())
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := dial(t)
	guardtest.Run(t, l, func(*testing.T) guardtest.Resource { return &number{c, unique()} })
}

// A script sees its own keys and arguments and no others.
func TestScriptSeesItsOwn(t *testing.T) {
	ctx, c := t.Context(), dial(t)
	l := locker.New(memory.New())
	t.Cleanup(func() { _ = l.Close() })
	group, err := locker.AcquireAll(ctx, l, []string{unique(), unique()})
	must(t, err)
	echo := redisfence.NewScript(`
local fences = 1 -- a name of its own
return table.concat(KEYS, ',') .. ';' .. table.concat(ARGV, ',')`)
	for _, lock := range []fence.Lock{group, group.Locks()[0]} {
		got, err := echo.Run(ctx, c, lock, []string{"k1", "k2"}, "a1", 2, "a3").Text()
		if want := "k1,k2;a1,2,a3"; got != want || err != nil {
			t.Errorf("the script saw %q, %v; want %q", got, err, want)
		}
		got, err = echo.Run(ctx, c, lock, nil).Text()
		if got != ";" || err != nil {
			t.Errorf("the script saw %q, %v; want nothing", got, err)
		}
	}
	keys, args := make([]string, 1, 9), make([]any, 1, 9) // with capacity for more
	must(t, echo.Run(ctx, c, group, keys, args...).Err())
	if keys[:2][1] != "" || args[:2][1] != nil {
		t.Error("Run wrote behind the caller's slices")
	}
	must(t, group.Release(ctx))
}

func TestUpdate(t *testing.T) {
	ctx, c, key, lock := t.Context(), dial(t), unique(), fence.Token(unique(), 7)
	set := func(text string) func(string, bool) (string, error) {
		return func(string, bool) (string, error) { return text, nil }
	}
	must(t, redisfence.Update(ctx, c, lock, key, func(value string, ok bool) (string, error) {
		if value != "" || ok {
			t.Errorf("a value of nothing is %q, %v", value, ok)
		}
		return "1", nil
	}))
	boom := errors.New("boom")
	err := redisfence.Update(ctx, c, lock, key, func(value string, ok bool) (string, error) {
		if value != "1" || !ok {
			t.Errorf("the value is %q, %v", value, ok)
		}
		return "2", boom
	})
	if err != boom || c.Get(ctx, key).Val() != "1" { //nolint:errorlint // the very error
		t.Errorf("a function that failed with %v wrote %q", err, c.Get(ctx, key).Val())
	}
	must(t, c.Expire(ctx, key, time.Hour).Err())
	must(t, redisfence.Update(ctx, c, lock, key, set("3")))
	if c.TTL(ctx, key).Val() < time.Minute {
		t.Error("the expiry of the key is gone")
	}
	err = redisfence.Update(ctx, c, lock, key, func(string, bool) (string, error) {
		must(t, redisfence.Update(ctx, c, fence.Token(lock.Name(), 8), key, set("4"))) // the next holder
		return "5", nil
	})
	if !errors.Is(err, fence.ErrStale) || c.Get(ctx, key).Val() != "4" {
		t.Errorf("a late write is %v and left %q", err, c.Get(ctx, key).Val())
	}
	if err := redisfence.Update(ctx, c, lock, key, nil); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("no function: %v", err)
	}
	if err := redisfence.Update(ctx, nil, lock, key, set("6")); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("no client: %v", err)
	}
}

// A script's own error is returned as it is, also if it looks like the guard's.
func TestErrorsOfScripts(t *testing.T) {
	ctx, c, lock := t.Context(), dial(t), fence.Token(unique(), 7)
	for _, text := range []string{"ERR mine", "LOCKERSTALE", "LOCKERSTALE 9 9", "LOCKERSTALE x y"} {
		err := redisfence.NewScript("return redis.error_reply('"+text+"')").Run(ctx, c, lock, nil).Err()
		if err == nil || !strings.Contains(err.Error(), text) || errors.Is(err, fence.ErrStale) {
			t.Errorf("%q became %v", text, err)
		}
	}
}

// In a cluster the keys of the data are in the slot of the lock's name, and Redis
// refuses others.
func TestCluster(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a cluster")
	}
	ctx := t.Context()
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: testbed.RedisCluster(t).Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	for _, name := range []string{"a", "stock:42", "order 7", "é"} {
		n := &number{c, "{" + name + "}:items"}
		must(t, n.Update(ctx, fence.Token(name, 5), func(v int) int { return v + 1 }))
		if err := n.Write(ctx, fence.Token(name, 4), 9); !errors.Is(err, fence.ErrStale) {
			t.Errorf("a late write under %q is %v", name, err)
		}
	}
	other := &number{c, "{elsewhere}"}
	if err := other.Write(ctx, fence.Token("a", 6), 1); err == nil || !strings.Contains(err.Error(), "CROSSSLOT") {
		t.Errorf("keys of two slots: %v", err)
	}
}

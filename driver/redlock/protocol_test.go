package redlock_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/versions"
)

// with opens a Locker with more parameters than a prefix.
func with(t *testing.T, address string, params url.Values) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), address+"?"+params.Encode())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestProtocolVersion: the version is on two of three nodes, so each majority that
// answers has a node with it.
func TestProtocolVersion(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	key := prefix + ":protocol:redlock"
	versions.Prove(t, versions.Store{
		Open: func(t *testing.T, other bool) *locker.Client {
			t.Helper()
			params := url.Values{"prefix": {prefix}}
			if other { // its locks would be at other keys
				params.Set("key_form", "mutex/*")
			}
			return with(t, nodes.URL(), params)
		},
		Get: func() (version string) {
			eventually(t, "the same on all nodes", func() bool {
				version = cs[0].Get(t.Context(), key).Val()
				return cs[1].Get(t.Context(), key).Val() == version
			})
			return version
		},
		Set: func(version string) {
			for i, c := range cs {
				if c.Del(t.Context(), key); version != "" && i < 2 {
					c.Set(t.Context(), key, version, 0)
				}
			}
		},
		Where: key,
	})
}

// TestVersionIsWritten: the version is written on all nodes, though only a majority is
// waited for, and again, after the loss of all data, by the next client.
func TestVersionIsWritten(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	key := prefix + ":protocol:redlock"
	release(t, take(t, client(t, nodes.URL()), "a"))
	for _, c := range cs {
		c.FlushAll(t.Context())
	}
	release(t, take(t, client(t, nodes.URL()), "a"))
	eventually(t, "the version on all nodes", func() bool {
		return cs[0].Get(t.Context(), key).Val() == redisqueue.Version && cs[1].Get(t.Context(), key).Val() == redisqueue.Version && cs[2].Get(t.Context(), key).Val() == redisqueue.Version
	})
	_, err := with(t, nodes.URL(), url.Values{"prefix": {prefix}, "key_form": {"*"}}).Acquire(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), `version "`+redisqueue.Version+` key_form=*"`) {
		t.Errorf("keys of another form under the same prefix: %v", err)
	}
}

// TestKeyForm: a driver with another form of keys can do all that the usual one can,
// and leaves nothing more behind.
func TestKeyForm(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs := clients(t, nodes)
	params := url.Values{"key_form": {"mutex/*"}}
	c, other := with(t, nodes.URL(), params), with(t, nodes.URL(), params)
	for _, name := range []string{"a", "a:rx", "{a}", fmt.Sprintf("n%x", rand.Uint64())} {
		for _, opts := range [][]locker.Option{nil, {locker.Shared()}, {locker.Limit(2)}} {
			k := take(t, c, name, append(opts, locker.WithTTL(time.Minute))...)
			eventually(t, "the key on all nodes", func() bool {
				return cs[0].Exists(t.Context(), "mutex/"+name).Val()+cs[1].Exists(t.Context(), "mutex/"+name).Val() == 2
			})
			got := queue(t, other, name, 2)
			if list, err := c.List(t.Context()); err != nil || len(list) != 1 || list[0] != name {
				t.Errorf("List: %q, %v", list, err)
			}
			if err := k.Extend(t.Context(), 2*time.Minute); err != nil {
				t.Error(err)
			}
			release(t, k)
			release(t, granted(t, got))
		}
	}
	eventually(t, "no keys", func() bool {
		n, err := cs[0].Keys(t.Context(), "mutex/*").Result()
		return err == nil && len(n) == 0
	})
	own := with(t, nodes.URL(), url.Values{"key_form": {"*"}, "prefix": {"own"}})
	if _, err := own.Acquire(t.Context(), "own:fences"); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a name whose key is the driver's: %v", err)
	}
}

func TestKeyFormRefused(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{"none": "want one *", "a**": "want one *", "*\n": "control", strings.Repeat("x", 300) + "*": "256 bytes"} {
		_, err := locker.Open(t.Context(), "redlock://h1,h2,h3?"+url.Values{"key_form": {form}}.Encode())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "key form") {
			t.Errorf("%q: %v, want %q", form, err, want)
		}
	}
}

// activeReplica is a connection to a server that says of itself what KeyDB with
// active-replica says.
type activeReplica struct {
	net.Conn

	rest []byte
}

func (c *activeReplica) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		buf := make([]byte, 4096)
		n, err := c.Conn.Read(buf)
		if err != nil {
			return 0, err
		}
		c.rest = bytes.ReplaceAll(buf[:n], []byte("$6\r\nmaster\r\n"), []byte("$14\r\nactive-replica\r\n"))
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// TestActiveReplica: nodes whose peers grant locks too are refused by Ping and by the first
// Acquire, which leaves no ticket.
func TestActiveReplica(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	var cs []goredis.UniversalClient
	for _, addr := range nodes.Addrs() {
		c := goredis.NewClient(&goredis.Options{
			Addr: addr,
			Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, network, addr)
				return &activeReplica{Conn: conn}, err
			},
		})
		t.Cleanup(func() { _ = c.Close() })
		cs = append(cs, c)
	}
	d, err := redlock.New(cs)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := driver.Request{Name: newID(), ID: newID(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("Acquire: %v", err)
	}
	if err := d.Ping(t.Context()); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Ping: %v", err)
	}
}

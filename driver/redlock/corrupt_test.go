package redlock_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCorruptQueue: nobody is granted past a value, a waiter or a shared holder that no program of ours has written, if
// a majority of the nodes has it.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	cs, l := clients(t, nodes), client(t, nodes.URL())
	const long = time.Minute
	for what, corrupt := range map[string]func(c *goredis.Client, key string) error{
		"value": func(c *goredis.Client, key string) error {
			return c.Set(t.Context(), key, "redlock garbage", long).Err()
		},
		"waiter": func(c *goredis.Client, key string) error {
			_, err := c.TxPipelined(t.Context(), func(p goredis.Pipeliner) error {
				p.ZAdd(t.Context(), key+":rx", goredis.Z{Member: "id", Score: 5})
				return p.HSet(t.Context(), key+":rt", "id", "garbage").Err()
			})
			return err
		},
		"set of waiters": func(c *goredis.Client, key string) error { return c.Set(t.Context(), key+":rx", "garbage", long).Err() },
	} {
		key := keyOf(what)
		for _, c := range cs[:2] {
			if err := corrupt(c, key); err != nil {
				t.Fatal(err)
			}
		}
		names := what
		if what == "waiter" {
			names = key + ":rt"
		}
		corrupttest.NotGranted(t, l, what, names)
		for _, c := range cs {
			c.Del(t.Context(), key, key+":rx", key+":rs", key+":rh", key+":re", key+":rt", key+":rp")
		}
		release(t, take(t, l, what))
	}
}

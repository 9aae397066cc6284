package redis_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCorruptQueue: nobody is granted past a value, a waiter or a shared holder that no program of ours has written.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	const long = time.Minute
	later := float64(time.Now().Add(long).UnixMicro())
	member := func(id string, score float64) goredis.Z { return goredis.Z{Member: id, Score: score} }
	for what, corrupt := range map[string]func(p goredis.Pipeliner, key string){
		"value": func(p goredis.Pipeliner, key string) { p.Set(context.Background(), key, "locker garbage", long) },
		"record of a waiter": func(p goredis.Pipeliner, key string) {
			p.ZAdd(context.Background(), key+":x", member("id", 5))
			p.HSet(context.Background(), key+":t", "id", "garbage")
		},
		"record of a reader that waits": func(p goredis.Pipeliner, key string) {
			p.ZAdd(context.Background(), key+":s", member("id", 5))
			p.HSet(context.Background(), key+":t", "id", "")
		},
		"limit of a waiter": func(p goredis.Pipeliner, key string) {
			p.ZAdd(context.Background(), key+":x", member("id", 5))
			p.HSet(context.Background(), key+":t", "id", "1 chan -7 0 ")
			p.ZAdd(context.Background(), key+":p", member("chan", later))
		},
		"set of waiters": func(p goredis.Pipeliner, key string) { p.Set(context.Background(), key+":x", "garbage", long) },
		"record of a reader": func(p goredis.Pipeliner, key string) {
			p.Set(context.Background(), key, "locker *", long)
			p.ZAdd(context.Background(), key+":h", member("id", 5))
			p.ZAdd(context.Background(), key+":e", member("id", later))
			p.HSet(context.Background(), key+":t", "id", "garbage")
		},
	} {
		t.Run(what, func(t *testing.T) {
			l, name := process(t, srv.URL()), "TASK of "+newName() // ASK is a word of Redis, too
			k, err := l.Acquire(t.Context(), name, locker.WithTTL(long))
			if err != nil {
				t.Fatal(err)
			}
			release(t, k)
			key := fmt.Sprintf("locker:{%s}", name)
			if _, err := c.TxPipelined(t.Context(), func(p goredis.Pipeliner) error {
				corrupt(p, key)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			names := name
			if strings.HasPrefix(what, "record of a") && strings.Contains(what, "wait") {
				names = key + ":t"
			}
			corrupttest.NotGranted(t, l, name, names)
			c.Del(t.Context(), key, key+":x", key+":s", key+":h", key+":e", key+":t", key+":p")
			release(t, take(t, l, name))
		})
	}
}

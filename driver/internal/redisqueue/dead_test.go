package redisqueue_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// TestDeadWaiterTakesNoPermit: a waiter whose process is dead is not ahead of a request with a larger limit, whether that
// waits or not, though the waiter between it and the holders lives.
func TestDeadWaiterTakesNoPermit(t *testing.T) {
	t.Parallel()
	for _, want := range []string{"s", "sw"} {
		s := newScript(t)
		ask := func(id, channel string, limit int, want string) any {
			t.Helper()
			return s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)},
				id, time.Minute.Milliseconds(), channel+" "+strconv.Itoa(limit)+" 0 ", want))
		}
		if !isToken(ask("holds", "one", 1, "sw")) {
			t.Fatal("not granted what is free")
		}
		for _, channel := range []string{"one", "two"} {
			if _, ok := ask("waits-"+channel, channel, 1, "sw").([]any); !ok {
				t.Fatal("does not wait")
			}
		}
		if got := ask("early", "three", 3, "s"); got != no {
			t.Errorf("granted a permit of 3 behind three others: %v", got)
		}
		s.client.ZAdd(t.Context(), s.main+":p", redis.Z{Member: "two", Score: 1})
		if got := ask("comes", "three", 3, want); !isToken(got) {
			t.Errorf("%s: one holds, and one waits: not granted the third permit of 3 (%v)", want, got)
		}
	}
}

func isToken(answer any) bool {
	_, is := answer.(string)
	return is
}

package redisqueue

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/internal/testbed"
)

// TestTokensOfAClockWithoutABattery: tokens grow, and the queue keeps its order, on a server that was started again with its
// data and with a clock that begins in 1970.
func TestTokensOfAClockWithoutABattery(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: testbed.Redis(t).Addr()})
	defer c.Close()
	const last = "1764450000000000"
	c.Set(t.Context(), "fence", last, 0)
	source := strings.ReplaceAll(Acquire.source, "call('TIME')", "{'200', '7'}")
	for i, id := range []string{"holds", "waits", "next"} {
		answer, err := c.Eval(t.Context(), source, []string{"lock", "fence"}, id, 60_000, "channel 0 0 ", "xw").Result()
		if err != nil {
			t.Fatal(err)
		}
		if list, waits := answer.([]any); waits {
			answer = list[0]
		}
		if want := last[:15] + string(rune('1'+i)); answer != want {
			t.Errorf("%s has the token %v, want %s", id, answer, want)
		}
	}
}

package redisqueue_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// TestWorkGrowsWithTheQueue: what one script does grows with the tickets that it grants or
// removes, not with their square. Many processes, each with one shared ticket, wait; the
// holder releases; they turn out to be dead.
func TestWorkGrowsWithTheQueue(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	for _, limit := range []string{"0", "100000"} {
		most := func(n int) int {
			s.client.FlushAll(t.Context())
			acquire := func(id, form string) {
				s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)}, id, 60_000, id+" "+limit+" 0 ", form))
			}
			acquire("holds", "x")
			for i := range n {
				acquire(fmt.Sprint("p", i), "sw")
			}
			acquire("writes", "xw")
			return max(
				s.commands(func() { s.release("holds", 0) }),
				s.commands(func() { s.run(redisqueue.NewCall(redisqueue.Inspect, []string{s.main})) }),
				s.commands(func() { s.run(redisqueue.NewCall(redisqueue.KeepAlive, []string{s.main}, "writes", "xwrites")) }),
				s.commands(func() {
					s.client.ZAdd(t.Context(), s.main+":p", redis.Z{Score: 1, Member: "writes"})
					s.run(redisqueue.NewCall(redisqueue.KeepAlive, []string{s.main}, "writes", "xwrites"))
				}),
			)
		}
		few, many := most(50), most(400)
		t.Logf("limit %s: %d commands for 50 tickets, %d for 400", limit, few, many)
		if many > 9*few {
			t.Errorf("limit %s: %d commands for 50 tickets, %d for 400", limit, few, many)
		}
	}
}

// TestWorkGrowsWithTheQueueRedlock: the same, on a node of Redlock. One process waits with
// many tickets, and asks for all of them.
func TestWorkGrowsWithTheQueueRedlock(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	for _, limit := range []string{"0", "100000"} {
		most := func(n int) int {
			s.client.FlushAll(t.Context())
			propose := func(id, process, form string) {
				number++
				s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, 60_000, form, "bucket", 1, process+" "+limit+" 0 "))
			}
			propose("holds", "p0", "xwn")
			args := []any{"p1"}
			for i := range n {
				id := fmt.Sprint("id", i)
				propose(id, "p1", "swn")
				args = append(args, "s"+id)
			}
			propose("writes", "p2", "xwn")
			return max(
				s.commands(func() { s.run(redisqueue.NewCall(redisqueue.RedlockRelease, []string{s.main}, "holds", "", "")) }),
				s.commands(func() { s.run(redisqueue.NewCall(redisqueue.RedlockKeepAlive, []string{s.main}, args...)) }),
				s.commands(func() {
					s.client.ZAdd(t.Context(), s.main+":rp", redis.Z{Score: 1, Member: "p1"})
					s.run(redisqueue.NewCall(redisqueue.RedlockKeepAlive, []string{s.main}, "p2", "xwrites"))
				}),
			)
		}
		few, many := most(50), most(400)
		t.Logf("limit %s: %d commands for 50 tickets, %d for 400", limit, few, many)
		if many > 9*few {
			t.Errorf("limit %s: %d commands for 50 tickets, %d for 400", limit, few, many)
		}
	}
}

// TestPermitBesideManyWaiters: who asks for a permit pays nothing for each of those who wait for one, if none of their processes is dead.
func TestPermitBesideManyWaiters(t *testing.T) {
	t.Parallel()
	for limit, held := range map[int]bool{1000: true, 100: false} { // of one who holds and 200 who wait
		s := newScript(t)
		ask := func(id string, limit int, form string) any {
			return s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)}, id, 60_000, fmt.Sprintf("p %d 0 ", limit), form))
		}
		ask("holds", 1, "s")
		ask("warm", 1, "s") // the server knows the script
		var granted bool
		cost := func() int {
			return s.commands(func() { _, granted = ask("asks", limit, "s").(string) })
		}
		for i := range 200 {
			ask(fmt.Sprint("waits", i), 1, "sw")
		}
		if n := cost(); n > 40 || granted != held {
			t.Errorf("a permit of %d: %d commands, granted: %t", limit, n, granted)
		}
	}
}

// commands counts the commands that the server runs in f, those in scripts included.
func (s *script) commands(f func()) int {
	s.t.Helper()
	if err := s.client.ConfigResetStat(s.t.Context()).Err(); err != nil {
		s.t.Fatal(err)
	}
	f()
	sum := 0
	for line := range strings.Lines(s.client.Info(s.t.Context(), "commandstats").Val()) {
		_, calls, _ := strings.Cut(line, ":calls=")
		n, _, _ := strings.Cut(calls, ",")
		if count, err := strconv.Atoi(n); err == nil {
			sum += count
		}
	}
	return sum
}

package redisqueue_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// shared asks for tickets with a limit of two, on one name of Redis or of a node of Redlock.
type shared struct {
	*script
	redlock bool
	number  int64
	numbers map[string]int64
}

func bothQueues(t *testing.T, test func(t *testing.T, s *shared)) {
	t.Helper()
	for _, redlock := range []bool{false, true} {
		t.Run(fmt.Sprintf("redlock=%t", redlock), func(t *testing.T) {
			t.Parallel()
			test(t, &shared{newScript(t), redlock, time.Now().Add(time.Hour).UnixMicro(), make(map[string]int64)})
		})
	}
}

// key is one of the keys beside the main key.
func (s *shared) key(end string) string {
	if s.redlock {
		end = "r" + end
	}
	return s.main + ":" + end
}

// queue asks for a ticket of a process of the same name, and reports whether it holds.
func (s *shared) queue(id, kind string, ttl time.Duration) bool {
	s.t.Helper()
	if !s.redlock {
		return isToken(s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, "fence"}, id, ttl.Milliseconds(), s.record(id, kind), kind+"w")))
	}
	s.number++
	s.numbers[id] = s.number
	return s.propose(id, kind, ttl, "wn")[0] == yes
}

func (s *shared) record(id, kind string) string {
	return id + " " + map[string]string{"x": "0", "s": "2"}[kind] + " 0 "
}

func (s *shared) propose(id, kind string, ttl time.Duration, form string) []any {
	s.t.Helper()
	return s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"},
		id, s.numbers[id], ttl.Milliseconds(), kind+form, "bucket", 1, s.record(id, kind))).([]any)
}

// leases returns the answer to a renewal for a minute.
func (s *shared) leases(id string) int64 { return s.renew(id, time.Minute) }

func (s *shared) renew(id string, ttl time.Duration) int64 {
	s.t.Helper()
	script := redisqueue.Renew
	if s.redlock {
		script = redisqueue.RedlockRenew
	}
	answers, err := redisqueue.Ints("renew", s.run(redisqueue.NewCall(script, []string{s.main}, id, ttl.Milliseconds())), 1)
	if err != nil {
		s.t.Fatal(err)
	}
	return answers[0]
}

func (s *shared) shorten(id string, left time.Duration) any {
	s.t.Helper()
	script := redisqueue.Shorten
	if s.redlock {
		script = redisqueue.RedlockShorten
	}
	return s.run(redisqueue.NewCall(script, []string{s.main}, id, left.Milliseconds()))
}

// left is the rest of the lease of the only holder. The keys of those who hold shared last as long.
func (s *shared) left(id, kind string) time.Duration {
	left := s.client.PTTL(s.t.Context(), s.main).Val()
	if kind == "s" {
		for _, end := range []string{"h", "e", "t"} {
			if s.client.PTTL(s.t.Context(), s.key(end)).Val() < left-time.Second { // it is read later
				s.t.Errorf("%s ends before the lease", s.key(end))
			}
		}
		left = min(left, time.Until(time.UnixMicro(int64(s.client.ZScore(s.t.Context(), s.key("e"), id).Val()))))
	}
	return left
}

// listen returns a function that returns what a process was notified of since.
func (s *shared) listen(process string) func() []string {
	s.t.Helper()
	sub := s.client.Subscribe(s.t.Context(), process)
	s.t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	return func() (kinds []string) {
		s.client.Publish(s.t.Context(), process, "last")
		for m := range sub.Channel() {
			if m.Payload == "last" {
				break
			}
			kinds = append(kinds, m.Payload[:1])
		}
		return kinds
	}
}

// TestPermitWhoseLeaseIsOver: a permit is free when its lease is over, though others hold, and the next waiter is notified by
// whatever comes. Its holder does not get it back.
func TestPermitWhoseLeaseIsOver(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		if !s.queue("short", "s", time.Minute) || !s.queue("long", "s", time.Minute) || s.queue("waits", "s", time.Minute) {
			t.Fatal("not the first two of three hold two permits")
		}
		s.client.ZAdd(t.Context(), s.key("e"), redis.Z{Score: 1, Member: "short"}) // its lease is over
		notified := s.listen("waits")
		s.queue("comes", "s", time.Minute)
		if got := notified(); !slices.Equal(got, []string{"g"}) {
			t.Errorf("the waiter is notified of %q, want of a grant", got)
		}
		if s.leases("short") != 0 || s.leases("long") != 1 {
			t.Error("the lease that is over is renewed, or the other one is not")
		}
		if s.redlock && s.propose("waits", "s", time.Minute, "wk")[0] != yes || s.leases("waits") != 1 {
			t.Error("the waiter does not hold")
		}
		if s.queue("last", "s", time.Minute) {
			t.Error("a third holds two permits")
		}
		if ids := s.client.ZRange(t.Context(), s.key("h"), 0, -1).Val(); !slices.Equal(ids, []string{"long", "waits"}) {
			t.Errorf("%q hold", ids)
		}
		if s.client.HExists(t.Context(), s.key("t"), "short").Val() {
			t.Error("the record of the lease that is over stays")
		}
	})
}

// TestMarkIsGone: where the main key is gone, by an operator or an eviction, nobody holds, and no holder comes back when
// others hold there.
func TestMarkIsGone(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		if !s.queue("first", "s", time.Minute) || !s.queue("second", "s", time.Minute) {
			t.Fatal("not granted what is free")
		}
		s.client.Del(t.Context(), s.main)
		if s.leases("first") != 0 {
			t.Error("a lease without the main key is renewed")
		}
		if !s.queue("third", "s", time.Minute) || !s.queue("fourth", "s", time.Minute) {
			t.Error("those whose leases are gone keep others out")
		}
		if s.leases("first") != 0 || s.leases("third") != 1 {
			t.Error("a lease that has gone is renewed, or another one is not")
		}
		if n := s.client.HLen(t.Context(), s.key("t")).Val(); n != 2 {
			t.Errorf("%d records, want those of the holders", n)
		}
	})
}

// TestHolderAsksAgain: the lease of a ticket that holds, and is asked for again, begins anew, and does not become shorter.
func TestHolderAsksAgain(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		for _, kind := range []string{"x", "s"} {
			s.client.FlushAll(t.Context())
			again := func(ttl, want time.Duration) {
				t.Helper()
				var held bool
				if s.redlock {
					held = s.propose("id", kind, ttl, "wk")[0] == yes
				} else {
					held = s.queue("id", kind, ttl)
				}
				if got := s.left("id", kind); !held || got < want-5*time.Second || got > want {
					t.Errorf("%s: it holds: %t, for %v, want %v", kind, held, got, want)
				}
			}
			if !s.queue("id", kind, 20*time.Second) {
				t.Fatal("not granted what is free")
			}
			again(time.Minute, time.Minute)
			again(20*time.Second, time.Minute)
			if s.redlock {
				continue
			}
			// The provisional lease of a waiter becomes one of the length that is asked for.
			s.client.FlushAll(t.Context())
			s.queue("holder", "x", time.Minute)
			s.queue("id", kind, 20*time.Second)
			s.leave(false, "holder")
			again(2*time.Second, 2*time.Second)
			again(time.Minute, time.Minute)
			if got := s.client.Get(t.Context(), s.main).Val() + s.client.HGet(t.Context(), s.key("t"), "id").Val(); strings.Contains(got, "?") {
				t.Errorf("%s: the lease is provisional: %s", kind, got)
			}
		}
	})
}

// TestLeaseLengths: a renewal makes a lease longer and never shorter, and shorten makes it shorter and never longer. Neither does
// anything for a ticket that waits.
func TestLeaseLengths(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		for _, kind := range []string{"x", "s"} {
			s.client.FlushAll(t.Context())
			if !s.queue("id", kind, 20*time.Second) || s.queue("waits", "x", time.Minute) {
				t.Fatal("not the first of two holds")
			}
			lasts := func(what string, want time.Duration) {
				t.Helper()
				if got := s.left("id", kind); got < want-5*time.Second || got > want {
					t.Errorf("%s: %s: the lease lasts for %v, want %v", kind, what, got, want)
				}
			}
			if s.renew("id", time.Minute) != 1 || s.renew("waits", time.Hour) != 0 {
				t.Errorf("%s: the holder is not renewed, or the waiter is", kind)
			}
			lasts("renewed", time.Minute)
			s.renew("id", 20*time.Second)
			lasts("renewed for less", time.Minute)
			if s.shorten("id", 30*time.Second) != yes || s.shorten("waits", time.Second) != no {
				t.Errorf("%s: the holder's lease is not shortened, or that of the waiter is", kind)
			}
			lasts("shortened", 30*time.Second)
			s.shorten("id", time.Minute)
			lasts("shortened to more", 30*time.Second)
		}
	})
}

// heartbeat sends a heartbeat of the process of a ticket, and returns after how many milliseconds it is to poll, the flags, and the
// ticket's state.
func (s *shared) heartbeat(id, kind string) (after, flags, state int64) {
	s.t.Helper()
	script := redisqueue.KeepAlive
	if s.redlock {
		script = redisqueue.RedlockKeepAlive
	}
	reply, err := redisqueue.Ints("heartbeat", s.run(redisqueue.NewCall(script, []string{s.main}, id, kind+id)), 3)
	if err != nil {
		s.t.Fatal(err)
	}
	return reply[0], reply[1], reply[2]
}

// TestFirstPolls: the process of the first waiter, whatever that waits for, is to poll when the lease ends, and no other.
func TestFirstPolls(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		for _, kinds := range []string{"xs", "sx"} {
			s.client.FlushAll(t.Context())
			s.queue("holds", "x", 20*time.Second)
			ids := []string{"first", "second"}
			for i, id := range ids {
				s.queue(id, kinds[i:i+1], time.Minute)
			}
			for i, id := range ids {
				if after, flags, state := s.heartbeat(id, kinds[i:i+1]); flags&1 != int64(1-i) || after < 15_000 || after > 20_000 || state != redisqueue.IsWaiting {
					t.Errorf("%s: the heartbeat of the %s: %d ms, flags %d, state %d", kinds, id, after, flags, state)
				}
			}
		}
	})
}

// TestFirstPollsForAPermit: that process is to poll when the first of several leases ends, and to poll all the time beside another
// library, which notifies nobody.
func TestFirstPollsForAPermit(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		s.queue("long", "s", time.Minute)
		s.queue("short", "s", 20*time.Second)
		s.queue("waits", "s", time.Minute)
		if after, flags, _ := s.heartbeat("waits", "s"); flags&3 != 1 || after < 15_000 || after > 20_000 {
			t.Errorf("beside permits: in %d ms, flags %d, want in 20 s, and to poll then", after, flags)
		}
		s.client.Set(t.Context(), s.main, "theirs", 20*time.Second)
		if after, flags, _ := s.heartbeat("waits", "s"); flags&3 != 3 || after < 15_000 || after > 20_000 {
			t.Errorf("beside another library: in %d ms, flags %d, want in 20 s, and that it is another one", after, flags)
		}
	})
}

// TestLapsedHeartbeat: a heartbeat that comes too late does not bring tickets back.
func TestLapsedHeartbeat(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		for _, kind := range []string{"x", "s"} {
			s.client.FlushAll(t.Context())
			s.queue("holds", "x", time.Minute)
			s.queue("early", kind, time.Minute)
			s.queue("other", kind, time.Minute)
			s.client.ZAddXX(t.Context(), s.key("p"), redis.Z{Score: 1, Member: "early"})
			if _, _, state := s.heartbeat("early", kind); state != redisqueue.IsGone {
				t.Errorf("%s: the state of the ticket of a lapsed process is %d", kind, state)
			}
			if ids := s.client.ZRange(t.Context(), s.key(kind), 0, -1).Val(); !slices.Equal(ids, []string{"other"}) {
				t.Errorf("%s: %q wait", kind, ids)
			}
			if s.client.HExists(t.Context(), s.key("t"), "early").Val() {
				t.Errorf("%s: the record of a dead ticket stays", kind)
			}
		}
	})
}

// TestQueuesAgain: a process that queues again, when it would soon be taken for dead, lives from then on.
func TestQueuesAgain(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		for _, kind := range []string{"x", "s"} {
			s.client.FlushAll(t.Context())
			s.queue("holds", "x", time.Minute)
			s.queue("id", kind, time.Minute)
			now := time.Now()
			s.client.ZAdd(t.Context(), s.key("p"), redis.Z{Score: float64(now.Add(2 * time.Second).UnixMicro()), Member: "id"})
			s.number++
			s.ask(s.redlock, "again", s.number, time.Minute, kind+"w", s.record("id", kind))
			if left := time.UnixMicro(int64(s.client.ZScore(t.Context(), s.key("p"), "id").Val())).Sub(now); left < redisqueue.Liveness {
				t.Errorf("%s: it is taken for dead %v later, want %v", kind, left, redisqueue.Liveness)
			}
		}
	})
}

// TestPermitsAhead: a node of Redlock counts those who wait ahead of a ticket with a limit, each once, and says who they are.
func TestPermitsAhead(t *testing.T) {
	t.Parallel()
	s := &shared{newScript(t), true, time.Now().Add(time.Hour).UnixMicro(), make(map[string]int64)}
	if !s.queue("holds", "x", time.Minute) {
		t.Fatal("not granted what is free")
	}
	for _, id := range []string{"a", "b", "c", "d"} {
		s.queue(id, "s", time.Minute)
	}
	s.leave(true, "holds")
	want := func(id string, what int64, ahead ...any) {
		t.Helper()
		got := s.propose(id, "s", time.Minute, "wk")
		if got[0] != what || what == 1 && fmt.Sprint(got[4:]) != fmt.Sprint([]any{append([]any{}, ahead...)}) {
			t.Errorf("%s: %v, want %d, and %v ahead", id, got, what, ahead)
		}
	}
	want("d", 2)
	want("c", 2)
	want("b", 1, "a")
	want("c", 2)
	want("b", 1, "a") // again
	want("a", 1)
	want("b", 1, "a")
	want("c", 2)
}

// TestInspectShowsWhoLives: a permit whose lease is over is not shown, nor is a waiter whose process is dead, nor any permit where the
// main key is gone.
func TestInspectShowsWhoLives(t *testing.T) {
	t.Parallel()
	bothQueues(t, func(t *testing.T, s *shared) {
		shows := func(what string, want ...string) {
			t.Helper()
			script := redisqueue.Inspect
			if s.redlock {
				script = redisqueue.RedlockInspect
			}
			var ids []string
			list := s.run(redisqueue.NewCall(script, []string{s.main})).([]any)
			for _, e := range append(list[3].([]any), list[4].([]any)...) {
				ids = append(ids, e.([]any)[0].(string))
			}
			if slices.Sort(ids); !slices.Equal(ids, want) {
				t.Errorf("%s: %q are shown, want %q", what, ids, want)
			}
		}
		for _, id := range []string{"a", "b", "c", "d"} {
			s.queue(id, "s", time.Minute)
		}
		s.queue("e", "x", time.Minute)
		shows("two of five hold", "a", "b", "c", "d", "e")
		s.client.ZAdd(t.Context(), s.key("e"), redis.Z{Score: 1, Member: "a"})
		shows("a lease is over", "b", "c", "d", "e")
		s.client.ZAdd(t.Context(), s.key("p"), redis.Z{Score: 1, Member: "c"}, redis.Z{Score: 1, Member: "e"})
		shows("processes are dead", "b", "d")
		s.client.Del(t.Context(), s.main)
		shows("the main key is gone", "d")
	})
}

package redisqueue_test

import (
	"fmt"
	"slices"
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

// ask asks Redis, or a node of Redlock, for a ticket.
func (s *script) ask(redlock bool, id string, number int64, ttl time.Duration, form, record string) {
	s.t.Helper()
	c := redisqueue.NewCall(redisqueue.Acquire, []string{s.main, "fence"}, id, ttl.Milliseconds(), record, form)
	if redlock {
		c = redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, ttl.Milliseconds(), form+"n", "bucket", 1, record)
	}
	s.run(c)
}

// leave releases a ticket there.
func (s *script) leave(redlock bool, id string) {
	s.t.Helper()
	c := redisqueue.NewCall(redisqueue.Release, []string{s.main}, id, 0)
	if redlock {
		c = redisqueue.NewCall(redisqueue.RedlockRelease, []string{s.main}, id, "", "")
	}
	s.run(c)
}

// TestDeadProcessesDoNotAddUp: of processes that have waited and are dead, nothing adds up in a queue that is never empty, and
// to remove it costs a request of the next process little.
func TestDeadProcessesDoNotAddUp(t *testing.T) {
	t.Parallel()
	const processes = 200
	s := newScript(t)
	for _, redlock := range []bool{false, true} {
		number := time.Now().Add(time.Hour).UnixMicro()
		lives := s.main + ":p"
		acquire := func(id, form string) {
			t.Helper()
			number++
			s.ask(redlock, id, number, time.Minute, form, id+" 0 0 ")
		}
		if redlock {
			lives = s.main + ":rp"
		}
		for _, form := range []string{"xw", "sw"} {
			s.client.FlushAll(t.Context())
			acquire("holds", "xw")
			id, before := "", ""
			done := s.commands(func() {
				for i := range processes {
					id, before = "p"+strconv.Itoa(i), id
					acquire(id, form)
					if i > 0 {
						s.leave(redlock, before)
						s.client.ZAdd(t.Context(), lives, redis.Z{Score: 1, Member: before})
					}
				}
			})
			if n := s.client.ZCard(t.Context(), lives).Val(); n > 5 {
				t.Errorf("redlock=%t, %s: the server knows %d processes, of which one waits", redlock, form, n)
			}
			t.Logf("redlock=%t, %s: %d commands for a process", redlock, form, done/processes)
		}
	}
}

// TestReleasedTicketsDoNotAddUp: of tickets that come and go, nothing adds up in a queue that is never empty, and nothing stays when it is.
func TestReleasedTicketsDoNotAddUp(t *testing.T) {
	t.Parallel()
	number := time.Now().Add(time.Hour).UnixMicro()
	for _, redlock := range []bool{false, true} {
		for _, kinds := range []string{"x", "s", "xs", "xxsxss"} {
			s := newScript(t)
			id := func(i int) string { return fmt.Sprint("id", i) }
			var sizes []int64
			const queue, all = 3, 24
			kind := func(i int) string { return string(kinds[i%len(kinds)]) }
			first := number + 1
			for i := range all {
				number++
				s.ask(redlock, id(i), number, time.Minute, kind(i)+"w", "channel 0 0 ")
				if i >= queue {
					s.leave(redlock, id(i-queue))
				}
				if next := i - queue + 1; redlock && next > 0 { // its turn has come
					s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"},
						id(next), first+int64(next), 60_000, kind(next)+"wk", "bucket", 2, "channel 0 0 "))
				}
				sizes = append(sizes, s.size())
			}
			if before, after := sizes[all/2-1], sizes[all-1]; before != after {
				t.Errorf("redlock %v, %s: %d entries, and %d after %d more tickets", redlock, kinds, before, after, all/2)
			}
			for i := range queue {
				s.leave(redlock, id(all-queue+i))
			}
			if keys := s.client.Keys(t.Context(), s.main+"*").Val(); len(keys) > 0 {
				t.Errorf("redlock %v, %s: %q stay", redlock, kinds, keys)
			}
		}
	}
}

// size counts the entries of all keys of the name.
func (s *script) size() (n int64) {
	s.t.Helper()
	ctx := s.t.Context()
	for _, key := range s.client.Keys(ctx, s.main+"*").Val() {
		n += s.client.HLen(ctx, key).Val() + s.client.ZCard(ctx, key).Val() // one of them fails, or both
	}
	return n
}

// TestRecordsOfDeadWaitersDoNotStay: when all who wait are dead for so long that their sets end by themselves, their records end too,
// though others hold all the time.
func TestRecordsOfDeadWaitersDoNotStay(t *testing.T) {
	t.Parallel()
	for _, redlock := range []bool{false, true} {
		s := newScript(t)
		numbers, first := map[string]int64{}, time.Now().Add(time.Hour).UnixMicro()
		keys := []string{":p", ":x", ":s", ":t", "", ":h", ":e"}
		if redlock {
			keys = []string{":rp", ":rx", ":rs", ":rt", "", ":rh", ":re"}
		}
		acquire := func(id, form string, limit int) {
			t.Helper()
			if numbers[id] == 0 {
				numbers[id] = first + int64(len(numbers))
			}
			s.ask(redlock, id, numbers[id], time.Hour, form, fmt.Sprintf("%s %d 0 ", id, limit)) // each has a process of its own
		}
		die := func() { // all who wait, a while ago
			t.Helper()
			for _, key := range keys[:3] {
				s.client.PExpire(t.Context(), s.main+key, time.Millisecond)
			}
			for s.client.Exists(t.Context(), s.main+keys[1], s.main+keys[2]).Val() > 0 {
				time.Sleep(time.Millisecond)
			}
			time.Sleep(2 * time.Millisecond)
		}
		records := func() (ids []string) {
			for id, record := range s.client.HGetAll(t.Context(), s.main+keys[3]).Val() {
				if len(record) > 10 { // else it is none
					ids = append(ids, id)
				}
			}
			slices.Sort(ids)
			return ids
		}
		check := func(when string, want ...string) {
			t.Helper()
			if got := records(); !slices.Equal(got, want) {
				t.Errorf("redlock=%t, %s: records of %q, want of %q", redlock, when, got, want)
			}
			if ttl := s.client.PTTL(t.Context(), s.main+keys[3]).Val(); len(want) > 0 && ttl < 50*time.Minute {
				t.Errorf("redlock=%t, %s: the records of who hold for an hour end in %v", redlock, when, ttl)
			}
		}

		acquire("reads", "sw", 0)
		acquire("dead1", "xw", 0)
		die()
		acquire("reads2", "sw", 0)
		check("another reads", "reads", "reads2")
		acquire("dead2", "xw", 0)
		die()
		s.leave(redlock, "reads")
		check("one reads no more", "reads2")
		acquire("dead3", "xw", 0)
		die()
		acquire("dead4", "xw", 0)
		check("another waits", "dead4", "reads2")
		acquire("dead5", "sw", 1)
		die()
		acquire("permit", "sw", 3)
		check("another has a permit", "permit", "reads2")
		s.leave(redlock, "reads2")

		acquire("writes", "xw", 0)
		acquire("dead6", "xw", 0)
		s.leave(redlock, "permit")
		acquire("writes", "xw", 0) // confirms it
		die()
		acquire("waits", "sw", 0)
		s.leave(redlock, "writes")
		acquire("waits", "sw", 0)
		check("a writer held meanwhile", "waits")

		// Its lease ends. The records last longer, as if who held before it had a longer one.
		for _, key := range keys[4:] {
			s.client.PExpire(t.Context(), s.main+key, time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond)
		acquire("reads3", "sw", 0)
		check("the lease of the last was over", "reads3")

		// The same, and a writer comes before the first who waits.
		acquire("dead7", "xw", 0)
		die()
		s.client.PExpire(t.Context(), s.main+keys[4], time.Millisecond)
		time.Sleep(5 * time.Millisecond)
		acquire("writes2", "xw", 0)
		acquire("waits2", "xw", 0)
		if got := records(); !slices.Equal(got, []string{"waits2"}) {
			t.Errorf("redlock=%t, a writer waits behind a writer: records of %q", redlock, got)
		}
	}
}

// TestRefusedTicketLeavesNothing: a ticket of Redlock that is on a node leaves nothing there when the node refuses its next number.
func TestRefusedTicketLeavesNothing(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	propose := func(main, id string, number int64, form string, round int) any {
		t.Helper()
		return s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{main, "fences"}, id, number, 60_000, form, "bucket", round, id+" 0 0 ")).([]any)[0]
	}
	for _, kind := range []string{"x", "s"} {
		for _, waits := range []bool{false, true} {
			s.client.FlushAll(t.Context())
			if waits && propose(s.main, "holds", number-1, "xwn", 1) != yes {
				t.Fatal("not granted what is free")
			}
			propose(s.main, "id", number, kind+"wn", 1)
			if kind == "s" {
				propose(s.main, "reads", number+1, "swn", 1)
			}
			if propose(s.keys.Main("other"), "other", number+20, "xwn", 1) != yes { // its fence is the same
				t.Fatal("not granted what is free")
			}
			if got := propose(s.main, "id", number+10, kind+"wr", 2); got != no {
				t.Fatalf("%s: a number below the fence: %v", kind, got)
			}
			if s.client.HExists(t.Context(), s.main+":rt", "id").Val() {
				t.Errorf("%s, waits=%t: its record stays", kind, waits)
			}
			s.leave(true, "reads")
			s.leave(true, "holds")
			if keys := s.client.Keys(t.Context(), s.main+"*").Val(); len(keys) > 0 {
				t.Errorf("%s, waits=%t: %q stay", kind, waits, keys)
			}
		}
	}
}

// TestFences: a fence of a node of Redlock is the largest number that ever held there, also where smaller ones hold later: those
// that were queued before, or are repaired.
func TestFences(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	propose := func(main, id string, number int64, form string) any {
		t.Helper()
		return s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{main, "fences"}, id, number, 60_000, form, "bucket", 1, id+" 0 0 ")).([]any)[0]
	}
	for _, c := range []struct {
		name, main, form string
		before           string // the kinds of those who wait ahead, and are released
		with             string // a kind of one who waits behind
		queued           bool
	}{
		{name: "the only waiter", main: s.main, form: "xwk", queued: true},
		{name: "first waiter", main: s.main, form: "xwk", with: "x", queued: true},
		{name: "writer beside a reader", main: s.main, form: "xwk", with: "s", queued: true},
		{name: "later waiter", main: s.main, form: "xwk", before: "xs", queued: true},
		{name: "reader", main: s.main, form: "swk", before: "xs", with: "x", queued: true},
		{name: "repair", main: s.keys.Main("repaired"), form: "xtm"},
		{name: "repair of a reader", main: s.keys.Main("repaired"), form: "stm"},
	} {
		for _, other := range []bool{false, true} {
			s.client.FlushAll(t.Context())
			propose(s.main, "holds", number-10, "xwn")
			for i, kind := range c.before {
				propose(s.main, c.before[i:i+1], number-5+int64(i), string(kind)+"wn")
			}
			if c.queued {
				propose(s.main, "id", number, c.form[:2]+"n")
			}
			if c.with != "" {
				propose(s.main, "behind", number+1, c.with+"wn")
			}
			want := number
			if other {
				want = number + 20
				propose(s.keys.Main("other"), "other", want, "xwn") // its fence is the same
			}
			s.leave(true, "holds")
			for i := range c.before {
				s.leave(true, c.before[i:i+1])
			}
			if got := propose(c.main, "id", number, c.form); got != yes {
				t.Errorf("%s: %v, want that it holds", c.name, got)
			}
			if got := s.client.HGet(t.Context(), "fences", "bucket").Val(); got != strconv.FormatInt(want, 10) {
				t.Errorf("%s, beside a larger number: %t: the fence is %s, want %d", c.name, other, got, want)
			}
		}
	}
}

// TestKeysOfTheFirstWaiterEnd: what is known of the first who wait ends by itself if their process dies at once.
func TestKeysOfTheFirstWaiterEnd(t *testing.T) {
	t.Parallel()
	for _, redlock := range []bool{false, true} {
		for _, kind := range []string{"xw", "sw"} {
			s := newScript(t)
			number := time.Now().Add(time.Hour).UnixMicro()
			s.ask(redlock, "holds", number, time.Minute, "xw", "p1 0 0 ")
			s.ask(redlock, "waits", number+1, time.Minute, kind, "p2 0 0 ")
			for _, key := range s.client.Keys(t.Context(), s.main+"*").Val() {
				if s.client.PTTL(t.Context(), key).Val() <= 0 {
					t.Errorf("redlock=%t, %s: %s stays for ever", redlock, kind, key)
				}
			}
		}
	}
}

package redisqueue_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// script runs the scripts by hand, on one name of a server of its own.
type script struct {
	t      *testing.T
	client *redis.Client
	pipe   *redisqueue.Pipe
	keys   redisqueue.Keys
	main   string
}

func newScript(t *testing.T) *script {
	t.Helper()
	s := &script{t: t, keys: redisqueue.Keys{Prefix: "test"}}
	s.main = s.keys.Main("name")
	s.client = redis.NewClient(&redis.Options{Addr: testbed.Redis(t).Addr()})
	s.pipe = redisqueue.NewPipe(s.client)
	t.Cleanup(func() {
		s.pipe.Close(time.Second)
		_ = s.client.Close()
	})
	return s
}

func (s *script) run(c *redisqueue.Call) any {
	s.t.Helper()
	s.pipe.Start(s.t.Context(), c) // it is sent once
	v, err := c.Wait()
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *script) acquire(id, form string, ttl time.Duration) any {
	s.t.Helper()
	return s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)},
		id, ttl.Milliseconds(), "channel 0 0 ", form))
}

func (s *script) release(id string, late int) any {
	s.t.Helper()
	return s.run(redisqueue.NewCall(redisqueue.Release, []string{s.main}, id, late))
}

// What the scripts answer.
var (
	gone = any(int64(-1))
	no   = any(int64(0))
	yes  = any(int64(1))
)

// TestLateRequests: when a release knows of requests on their way, each of them does
// nothing when it arrives, whatever the order, and other tickets are as they would be.
func TestLateRequests(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	if got := s.release("a", 2); got != no {
		t.Errorf("release before its requests: %v", got)
	}
	for range 2 {
		if got := s.acquire("a", "xw", time.Minute); got != gone {
			t.Errorf("a request after its release: %v", got)
		}
	}
	if got, ok := s.acquire("b", "xw", time.Minute).(string); !ok {
		t.Errorf("another ticket: %v", got)
	}
	if got := s.release("b", 2); got != yes {
		t.Errorf("release between its requests: %v", got)
	}
	if got := s.acquire("b", "xw", time.Minute); got != gone {
		t.Errorf("the other request: %v", got)
	}
	if got, ok := s.acquire("c", "xw", time.Minute).(string); !ok {
		t.Errorf("another ticket: %v", got)
	}
	if got := s.release("c", 1); got != yes {
		t.Errorf("release after one of its requests: %v", got)
	}
	if got := s.acquire("c", "xw", time.Minute); got != gone {
		t.Errorf("an earlier request, which comes last: %v", got)
	}
	s.client.ZAdd(t.Context(), s.main+":d", redis.Z{Score: 2, Member: "old"})
	s.release("d", 1)
	if n := s.client.ZScore(t.Context(), s.main+":d", "old").Val(); n != 2 {
		t.Errorf("an older program expects %v requests, want 2", n)
	}
	if keys := s.client.Keys(t.Context(), "*").Val(); len(keys) != 2 {
		t.Errorf("%q stay, want the last token and the tombstones", keys)
	}
}

// TestTombstoneEnds: a tombstone lasts for five seconds, however many releases leave one meanwhile.
func TestTombstoneEnds(t *testing.T) {
	t.Parallel()
	number := time.Now().Add(time.Hour).UnixMicro()
	check := func(t *testing.T, release func(*script, string), refuses func(*script, string) bool) {
		t.Parallel()
		s := newScript(t)
		release(s, "first")
		for begun := time.Now(); time.Since(begun) < 5500*time.Millisecond; time.Sleep(500 * time.Millisecond) {
			release(s, fmt.Sprint(time.Since(begun)))
		}
		release(s, "last")
		if !refuses(s, "last") {
			t.Error("a request after its release is done")
		}
		if refuses(s, "first") {
			t.Error("the tombstone of a release five seconds ago is there")
		}
	}
	t.Run("redis", func(t *testing.T) {
		check(t, func(s *script, id string) {
			s.release(id, 1)
		}, func(s *script, id string) bool {
			return s.acquire(id, "xw", time.Minute) == gone
		})
	})
	t.Run("redlock", func(t *testing.T) {
		check(t, func(s *script, id string) {
			s.run(redisqueue.NewCall(redisqueue.RedlockRelease, []string{s.main}, id, "", 1))
		}, func(s *script, id string) bool {
			number++
			c := redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, 60_000, "xwn", "bucket", 1, "p 0 0 ")
			return s.run(c).([]any)[0] == gone
		})
	})
}

// TestGivenBackAfterRelease: an attempt of a ticket that was released is refused, though the release of an earlier attempt comes
// after the ticket's.
func TestGivenBackAfterRelease(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	for _, last := range []any{"", 1} { // the ticket's, and that of the first attempt
		s.run(redisqueue.NewCall(redisqueue.RedlockRelease, []string{s.main}, "id", last, 1))
		c := redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, "id", number, 60_000, "xwn", "bucket", 2, "p 0 0 ")
		if got := s.run(c).([]any)[0]; got != gone {
			t.Errorf("the second attempt, after a release of %q: %v", last, got)
		}
	}
}

// TestNobodyOvertakes: when a lease has ended and no script has run since, the first
// waiter gets the lock, whichever request comes.
func TestNobodyOvertakes(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"x", "xw", "s", "sw"} {
		s := newScript(t)
		if _, ok := s.acquire("dead", "x", time.Minute).(string); !ok {
			t.Fatal("not granted what is free")
		}
		if _, ok := s.acquire("waits", "xw", time.Minute).([]any); !ok {
			t.Fatal("does not wait")
		}
		s.client.PExpire(t.Context(), s.main, time.Millisecond) // the lease of who holds, and nobody has to be quick
		for s.client.Exists(t.Context(), s.main).Val() == 1 {
			time.Sleep(time.Millisecond)
		}
		if got, granted := s.acquire("comes", form, time.Minute).(string); granted {
			t.Errorf("%s overtakes, with token %s", form, got)
		}
		if holder := s.client.Get(t.Context(), s.main).Val(); !strings.HasPrefix(holder, "locker?waits ") {
			t.Errorf("the holder is %q", holder)
		}
	}
}

// TestLookAfterProvisionalLease: while a holder has not confirmed its grant, every
// waiting process is to poll when the lease ends, not only the process of the first
// waiter. Otherwise expired waiters would delay the queue by another heartbeat.
func TestLookAfterProvisionalLease(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"x", "s"} {
		s := newScript(t)
		acquire := func(id, channel, form string) {
			t.Helper()
			s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)}, id, 60_000, channel+" 0 0 ", form))
		}
		acquire("holds", "p0", "x")
		acquire("dead", "p1", kind+"w")
		acquire("first", "p2", "xw")
		acquire("second", "p3", "xw")
		if got := s.release("holds", 0); got != yes {
			t.Fatalf("release: %v", got)
		}
		v := s.run(redisqueue.NewCall(redisqueue.KeepAlive, []string{s.main}, "p3", "xsecond"))
		reply, err := redisqueue.Ints("heartbeat", v, 3)
		if err != nil || reply[1]&1 == 0 || reply[0] <= 0 || reply[0] > 3000 {
			t.Errorf("%s: a heartbeat answers %v, %v; want to poll within 3000 ms", kind, reply, err)
		}
		s.run(redisqueue.NewCall(redisqueue.Renew, []string{s.main}, "dead", 60_000))
		if reply, err = redisqueue.Ints("heartbeat", s.run(redisqueue.NewCall(redisqueue.KeepAlive, []string{s.main}, "p3", "xsecond")), 3); err != nil || reply[1]&1 != 0 {
			t.Errorf("%s: after the grant is confirmed a heartbeat answers %v, %v", kind, reply, err)
		}
	}
}

// TestLateProposal: a proposal that arrives after a later one of the same ticket changes
// nothing, be its number smaller, the same, or larger. One that is not late does.
func TestLateProposal(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	base := time.Now().Add(time.Hour).UnixMicro()
	propose := func(id, form string, number int64, round int) []any {
		t.Helper()
		answer, ok := s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"},
			id, number, 60_000, form, "bucket", round, "channel 0 0 ")).([]any)
		if !ok {
			t.Fatal("no list")
		}
		return answer
	}
	tickets := func() string {
		t.Helper()
		v := s.run(redisqueue.NewCall(redisqueue.RedlockInspect, []string{s.main}))
		list := v.([]any)
		return fmt.Sprint(list[1], list[3], list[4])
	}
	for _, kind := range []string{"x", "s"} {
		for _, held := range []bool{true, false} {
			s.client.FlushAll(t.Context())
			if !held {
				propose("other", "xwn", base, 1)
			}
			propose("a", kind+"wn", base+100, 2)
			before := tickets()
			for _, origin := range []string{"r", "k", "m"} {
				for _, number := range []int64{base + 50, base + 100, base + 150} {
					if origin == "m" && number == base+50 && !held {
						continue // another holds a majority
					}
					if got := propose("a", kind+"w"+origin, number, 1); got[0] != int64(4) {
						t.Errorf("%s, held=%t: a late proposal %s of %d: %v", kind, held, origin, number-base, got)
					}
					if after := tickets(); after != before {
						t.Fatalf("%s, held=%t: a late proposal %s of %d has made %s of %s", kind, held, origin, number-base, after, before)
					}
				}
			}
			if got := propose("a", kind+"wr", base+150, 3); held && got[0] != yes || !held && got[0] != int64(2) {
				t.Errorf("%s, held=%t: the next proposal: %v", kind, held, got)
			}
			if !held {
				s.run(redisqueue.NewCall(redisqueue.RedlockRelease, []string{s.main}, "other", "", ""))
				before := tickets()
				if got := propose("a", kind+"wk", base+150, 2); got[0] != int64(4) || tickets() != before {
					t.Errorf("%s: a late proposal where nobody holds: %v has made %s of %s", kind, got, tickets(), before)
				}
			}
			if held {
				got := s.run(redisqueue.NewCall(redisqueue.RedlockYield, []string{s.main}, "a", 2))
				if got != no || !strings.Contains(tickets(), "a "+fmt.Sprint(base+150)) && kind == "x" {
					t.Errorf("%s: a late yield: %v, %s", kind, got, tickets())
				}
				if got := s.run(redisqueue.NewCall(redisqueue.RedlockYield, []string{s.main}, "a", 4)); got != yes {
					t.Errorf("%s: a yield of what an earlier proposal has made: %v", kind, got)
				}
			}
		}
	}
}

// TestYield: a ticket that holds on a node, and yields, waits there again with its number, and the process of a ticket ahead of
// it, which may hold now, is notified. A release for the attempts before leaves it alone.
func TestYield(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	sub := s.client.Subscribe(t.Context(), "ahead", "yields")
	t.Cleanup(func() { _ = sub.Close() })
	for range 2 {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	base := time.Now().Add(time.Hour).UnixMicro()
	propose := func(id, form string, number int64) any {
		t.Helper()
		c := redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, 60_000, form, "bucket", 2, id+" 0 0 ")
		return s.run(c).([]any)[0]
	}
	for _, kind := range []string{"x", "s"} {
		s.client.FlushAll(t.Context())
		if got := propose("yields", kind+"wn", base+2); got != yes {
			t.Fatalf("%s: not granted what is free: %v", kind, got)
		}
		propose("ahead", "xjm", base+1)
		if got := s.run(redisqueue.NewCall(redisqueue.RedlockRelease, []string{s.main}, "yields", 1, "")); got != no {
			t.Errorf("%s: a release for attempts before: %v", kind, got)
		}
		if got := s.run(redisqueue.NewCall(redisqueue.RedlockYield, []string{s.main}, "yields", 2)); got != no {
			t.Errorf("%s: it is said that it may hold, behind another one: %v", kind, got)
		}
		s.client.Publish(t.Context(), "ahead", "last")
		var notices []string
		for m := range sub.Channel() {
			if m.Payload == "last" {
				break
			}
			notices = append(notices, m.Channel+" "+m.Payload)
		}
		if fmt.Sprint(notices) != "[ahead gahead]" {
			t.Errorf("%s: notices %q", kind, notices)
		}
		left := s.run(redisqueue.NewCall(redisqueue.RedlockInspect, []string{s.main})).([]any)
		if holder, waiters := left[1], fmt.Sprint(left[4]); holder != nil || len(left[3].([]any)) > 0 || !strings.Contains(waiters, fmt.Sprint("yields ", base+2, " ", kind)) {
			t.Errorf("%s: left are %v", kind, left)
		}
		if n := s.client.Exists(t.Context(), s.main+":re", s.main+":rh").Val(); n > 0 {
			t.Errorf("%s: there are shared holders", kind)
		}
	}
}

// TestHeartbeatCountsAhead: a node of Redlock says of which tickets with a limit may hold, by
// the live tickets ahead of each.
func TestHeartbeatCountsAhead(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	propose := func(id, process, form string) {
		t.Helper()
		number++
		limit := map[bool]string{true: "2", false: "0"}[form[0] == 's' && id != "r"]
		s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, 60_000, form, "bucket", 1, process+" "+limit+" 0 "))
	}
	states := func() string {
		t.Helper()
		v := s.run(redisqueue.NewCall(redisqueue.RedlockKeepAlive, []string{s.main}, "p1", "sa", "sb", "sc", "xw", "sr"))
		reply, err := redisqueue.Ints("heartbeat", v, 7)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(reply[2:])
	}
	propose("holds", "p1", "xwn")
	propose("dead", "p2", "swn")
	for _, id := range []string{"a", "b", "c"} {
		propose(id, "p1", "swn")
	}
	propose("w", "p1", "xwn")
	propose("r", "p1", "swn")
	if got := states(); got != "[1 1 1 1 1]" {
		t.Errorf("behind an exclusive holder: %s", got)
	}
	s.run(redisqueue.NewCall(redisqueue.RedlockRelease, []string{s.main}, "holds", "", ""))
	if got := states(); got != "[3 1 1 1 1]" {
		t.Errorf("two may hold, and the first is of another process: %s", got)
	}
	s.client.ZAdd(t.Context(), s.main+":rp", redis.Z{Score: 1, Member: "p2"})
	if got := states(); got != "[3 3 1 1 1]" {
		t.Errorf("the process of the first has died: %s", got)
	}
	number -= 5
	propose("a", "p1", "swk")
	if got := states(); got != "[2 3 1 1 1]" {
		t.Errorf("one holds: %s", got)
	}
	for _, id := range []string{"a", "b", "c"} {
		s.leave(true, id)
	}
	if got := states(); got != "[0 0 0 3 1]" {
		t.Errorf("those with a limit have gone: %s", got)
	}
	s.leave(true, "w")
	if got := states(); got != "[0 0 0 0 3]" {
		t.Errorf("a reader is alone: %s", got)
	}
}

// TestNotifiesWhoMayHold: a release on a node of Redlock notifies those who may hold then, also behind one who may not, be their
// limit larger or none, and a writer only if nobody is ahead.
func TestNotifiesWhoMayHold(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	sub := s.client.Subscribe(t.Context(), "a", "b", "c", "d", "r", "w", "end")
	t.Cleanup(func() { _ = sub.Close() })
	for range 7 {
		if _, err := sub.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	limits := map[string]string{"a": "1", "b": "1", "c": "3", "d": "1"}
	for waiters, want := range map[string]string{"abcw": "ac", "abcrw": "acr", "abrdw": "ar", "bcaw": "bc", "rw": "r", "wa": "w"} {
		s.client.FlushAll(t.Context())
		for _, id := range append([]string{"holds"}, strings.Split(waiters, "")...) {
			kind := "s"
			if id == "holds" || id == "w" {
				kind = "x"
			}
			number++
			s.ask(true, id, number, time.Minute, kind+"w", id+" "+cmp.Or(limits[id], "0")+" 0 ")
		}
		s.leave(true, "holds")
		s.client.Publish(t.Context(), "end", "end")
		got := ""
		for m := range sub.Channel() {
			if m.Channel == "end" {
				break
			}
			got += m.Channel
		}
		if got != want {
			t.Errorf("of %s are notified %s, want %s", waiters, got, want)
		}
	}
}

// TestShortenNotifies: the process of the first waiter learns that a lease ends earlier.
func TestShortenNotifies(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	sub := s.client.Subscribe(t.Context(), "channel")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	notices := sub.Channel()
	notified := func(what string) {
		t.Helper()
		s.client.Publish(t.Context(), "channel", "last")
		var all []string
		for m := range notices {
			if m.Payload == "last" {
				break
			}
			all = append(all, m.Payload)
		}
		if fmt.Sprint(all) != "[n"+s.main+"]" {
			t.Errorf("%s: the process is notified of %q", what, all)
		}
	}
	for _, kind := range []string{"x", "s"} {
		s.client.FlushAll(t.Context())
		s.acquire("a", kind, time.Minute)
		s.acquire("b", "xw", time.Minute)
		s.run(redisqueue.NewCall(redisqueue.Shorten, []string{s.main}, "a", 100))
		notified(kind)

		s.client.FlushAll(t.Context())
		number := time.Now().Add(time.Hour).UnixMicro()
		for i, ticket := range [][2]string{{"a", kind + "wn"}, {"b", "xwn"}} {
			s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"},
				ticket[0], number+int64(i), 60_000, ticket[1], "bucket", 1, "channel 0 0 "))
		}
		s.run(redisqueue.NewCall(redisqueue.RedlockShorten, []string{s.main}, "a", 100))
		notified("redlock " + kind)
	}
}

// TestMemoryIsShort: where the server refuses what needs more memory, tickets that are there
// are renewed, confirmed and released, and heartbeats are answered.
func TestMemoryIsShort(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	short := func(limit string) {
		if err := s.client.ConfigSet(t.Context(), "maxmemory", limit).Err(); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, want any, c *redisqueue.Call) {
		t.Helper()
		s.pipe.Start(t.Context(), c)
		if got, err := c.Wait(); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, %v; want %v", what, got, err, want)
		}
	}
	waits := func(what string, c *redisqueue.Call) {
		t.Helper()
		v, err := s.pipe.Do(t.Context(), c)
		if err == nil {
			v, err = redisqueue.Ints("heartbeat", v, 3)
		}
		if list, ok := v.([]int64); err != nil || !ok || list[2] != redisqueue.IsWaiting {
			t.Errorf("%s: %v, %v", what, v, err)
		}
	}
	one := []int64{1}
	main := []string{s.main}
	for _, kind := range []string{"x", "s"} {
		short("0")
		s.client.FlushAll(t.Context())
		s.acquire("a", "x", time.Minute)
		s.acquire("b", kind+"w", time.Minute)
		short("1")
		waits(kind+": heartbeat", redisqueue.NewCall(redisqueue.KeepAlive, main, "channel", kind+"b"))
		want(kind+": renewal", one, redisqueue.NewCall(redisqueue.Renew, main, "a", 100_000))
		want(kind+": release with a tombstone", 1, redisqueue.NewCall(redisqueue.Release, main, "a", 2))
		want(kind+": confirmation", one, redisqueue.NewCall(redisqueue.Renew, main, "b", 100_000))
		want(kind+": renewal after it", one, redisqueue.NewCall(redisqueue.Renew, main, "b", 200_000))
		want(kind+": shorten", 1, redisqueue.NewCall(redisqueue.Shorten, main, "b", 50_000))
		want(kind+": release", 1, redisqueue.NewCall(redisqueue.Release, main, "b", 0))
		want(kind+": release of nothing, with a tombstone", 0, redisqueue.NewCall(redisqueue.Release, main, "b", 2))

		short("0")
		s.client.FlushAll(t.Context())
		number := time.Now().Add(time.Hour).UnixMicro()
		propose := func(id, form string, number int64) *redisqueue.Call {
			return redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, 60_000, form, "bucket", 1, "channel 0 0 ")
		}
		s.run(propose("a", "xwn", number))
		s.run(propose("b", kind+"wn", number+1))
		short("1")
		waits(kind+": redlock: heartbeat", redisqueue.NewCall(redisqueue.RedlockKeepAlive, main, "channel", kind+"b"))
		want(kind+": redlock: renewal", one, redisqueue.NewCall(redisqueue.RedlockRenew, main, "a", 100_000))
		want(kind+": redlock: release with a tombstone", 1, redisqueue.NewCall(redisqueue.RedlockRelease, main, "a", "", 1))
		if v, ok := s.run(propose("b", kind+"wk", number+1)).([]any); !ok || v[0] != yes {
			t.Errorf("%s: redlock: the next ticket: %v", kind, v)
		}
		want(kind+": redlock: renewal of the next", one, redisqueue.NewCall(redisqueue.RedlockRenew, main, "b", 100_000))
		want(kind+": redlock: shorten", 1, redisqueue.NewCall(redisqueue.RedlockShorten, main, "b", 50_000))
		want(kind+": redlock: yield", 1, redisqueue.NewCall(redisqueue.RedlockYield, main, "b", 1))
		want(kind+": redlock: release", 1, redisqueue.NewCall(redisqueue.RedlockRelease, main, "b", "", ""))
	}
}

// TestKeysOfWaitersEndTogether: what is known of those who wait lives at least as long as the set
// in which they wait, whenever the others in the queue were last heard of.
func TestKeysOfWaitersEndTogether(t *testing.T) {
	t.Parallel()
	const late = 3500 * time.Millisecond // what is left when the keys need no renewal yet
	number := time.Now().Add(time.Hour).UnixMicro()
	for _, redlock := range []bool{false, true} {
		s, side := newScript(t), ":"
		if redlock {
			side = ":r"
		}
		acquire := func(id, process, form string) {
			t.Helper()
			number++
			c := redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)}, id, 60_000, process+" 0 0 ", form)
			if redlock {
				c = redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, 60_000, form+"n", "bucket", 1, process+" 0 0 ")
			}
			s.run(c)
		}
		left := func(set string) time.Duration { return s.client.PTTL(t.Context(), s.main+side+set).Val() }
		acquire("holds", "p1", "xw")
		acquire("first", "p1", "xw")
		for _, form := range []string{"sw", "xw"} {
			for _, set := range []string{"x", "s", "t", "p"} {
				s.client.PExpire(t.Context(), s.main+side+set, late)
			}
			s.client.PExpire(t.Context(), s.main+side+form[:1], time.Second) // it is renewed
			acquire("next-"+form, "p-"+form, form)
			set, tickets, processes := left(form[:1]), left("t"), left("p")
			if set < late || tickets < set-time.Second/2 || processes < set-time.Second/2 {
				t.Errorf("redlock=%t, %s: the set ends in %v, its tickets in %v, their processes in %v", redlock, form, set, tickets, processes)
			}
		}
	}
}

// TestFirstIsSilent: when the process of the first waiter has missed a heartbeat, the others poll when it is taken for dead. It may
// be granted before, and nobody is notified of the end of its provisional lease.
func TestFirstIsSilent(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	for _, redlock := range []bool{false, true} {
		keepAlive, acquire, lives := redisqueue.KeepAlive, redisqueue.Acquire, s.main+":p"
		if redlock {
			keepAlive, acquire, lives = redisqueue.RedlockKeepAlive, redisqueue.RedlockAcquire, s.main+":rp"
		}
		s.client.FlushAll(t.Context())
		number := time.Now().Add(time.Hour).UnixMicro()
		for i, id := range strings.Fields("holds first second") {
			args := []any{id, 60_000, fmt.Sprintf("p%d 0 0 ", i), "xw"}
			if redlock {
				args = []any{id, number + int64(i), 60_000, "xwn", "bucket", 1, fmt.Sprintf("p%d 0 0 ", i)}
			}
			s.run(redisqueue.NewCall(acquire, []string{s.main, "fences"}, args...))
		}
		poll := func() (after, flags int64) {
			v := s.run(redisqueue.NewCall(keepAlive, []string{s.main}, "p2", "xsecond")).([]any)
			return v[0].(int64), v[1].(int64)
		}
		if after, flags := poll(); after < 10_000 || flags&1 != 0 {
			t.Errorf("redlock %v: behind a process that lives: after %d ms, flags %d", redlock, after, flags)
		}
		s.client.ZAdd(t.Context(), lives, redis.Z{Score: float64(time.Now().Add(time.Second).UnixMicro()), Member: "p1"})
		if after, flags := poll(); after < 0 || after > 1000 || flags&1 == 0 {
			t.Errorf("redlock %v: behind a process that is silent: after %d ms, flags %d", redlock, after, flags)
		}
	}
}

// TestNumberIsTaken: a number with which a ticket waits on a node of Redlock, of either kind, is given to no other, also where it is
// larger than all that have held: two grants with one token would not be told apart. Nor does a guess overtake it.
func TestNumberIsTaken(t *testing.T) {
	t.Parallel()
	s := newScript(t)
	number := time.Now().Add(time.Hour).UnixMicro()
	propose := func(id, form string, number int64) []any {
		t.Helper()
		return s.run(redisqueue.NewCall(redisqueue.RedlockAcquire, []string{s.main, "fences"}, id, number, 60_000, form, "bucket", 1, id+" 0 0 ")).([]any)
	}
	for _, kinds := range []string{"xx", "xs", "sx", "ss"} {
		s.client.FlushAll(t.Context())
		propose("holds", "xwn", number-10)
		propose("waits", kinds[:1]+"wn", number)
		if got := propose("other", kinds[1:]+"wr", number); got[0] != no || got[2] != number {
			t.Errorf("%s: the number of another: %v, want that it has to be above %d", kinds, got, number)
		}
		if got := propose("other", kinds[1:]+"wn", number-1); got[0] != no || got[2] != number {
			t.Errorf("%s: a guess that would overtake: %v, want that it has to be above %d", kinds, got, number)
		}
		if got := propose("other", kinds[1:]+"wr", number-1); got[0] != int64(2) {
			t.Errorf("%s: a number that nobody has: %v", kinds, got)
		}
	}
}

// TestTryWithALimit: a try that is refused on a node of Redlock says which tickets are ahead, as many as its limit, in order, whether
// they hold or wait: if a majority has the same, the try is decided. It says of none if another ticket is in the way, leaves nothing
// of itself, and those who may hold since a lease is over are notified.
func TestTryWithALimit(t *testing.T) {
	t.Parallel()
	s := &shared{newScript(t), true, time.Now().Add(time.Hour).UnixMicro(), make(map[string]int64)}
	try := func(want ...any) {
		t.Helper()
		s.number++
		s.numbers["try"] = s.number
		got := s.propose("try", "s", time.Minute, "tn")
		if len(want) > 0 {
			want = []any{want}
		}
		if got[0] != int64(3) || fmt.Sprint(got[4:]) != fmt.Sprint(want) {
			t.Errorf("a try: %v, want that it is refused, and %v", got, want)
		}
		if s.client.ZScore(t.Context(), s.key("s"), "try").Err() == nil || s.client.HExists(t.Context(), s.key("t"), "try").Val() {
			t.Error("the try waits")
		}
	}
	s.queue("a", "s", time.Minute)
	s.queue("b", "s", time.Minute)
	s.queue("c", "s", time.Minute)
	s.queue("d", "s", time.Minute)
	try("a", "b")
	s.leave(true, "a")
	try("b", "c")
	if s.propose("c", "s", time.Minute, "wk")[0] != yes {
		t.Fatal("the first of two waiters does not hold")
	}
	try("b", "c")
	s.queue("e", "s", time.Minute)
	notified := s.listen("d")
	s.client.ZAdd(t.Context(), s.key("e"), redis.Z{Score: 1, Member: "b"}, redis.Z{Score: 1, Member: "c"}) // their leases are over
	try("d", "e")
	if got := notified(); len(got) == 0 || got[0] != "g" {
		t.Errorf("the first waiter is notified of %q, want of a grant", got)
	}
	s.client.ZAdd(t.Context(), s.key("p"), redis.Z{Score: 1, Member: "d"}) // its process is dead
	s.queue("f", "s", time.Minute)
	try("e", "f")
	s.queue("x", "x", time.Minute)
	try("x")
	for _, id := range []string{"e", "f"} {
		s.leave(true, id)
	}
	if s.propose("x", "x", time.Minute, "wk")[0] != yes {
		t.Fatal("the first waiter does not hold")
	}
	try("x")
	s.queue("try", "s", time.Minute)
	s.queue("g", "s", time.Minute)
	s.number = s.numbers["try"] - 1
	try("x") // its ticket, which waits
}

// TestNextOfSeveral: a ticket that takes a permit whose lease is over leaves others, and their waiter is notified.
func TestNextOfSeveral(t *testing.T) {
	t.Parallel()
	s := &shared{newScript(t), true, time.Now().Add(time.Hour).UnixMicro(), make(map[string]int64)}
	for _, id := range []string{"a", "b", "first", "second"} {
		s.queue(id, "s", time.Minute)
	}
	s.client.ZAdd(t.Context(), s.key("e"), redis.Z{Score: 1, Member: "a"}, redis.Z{Score: 1, Member: "b"})
	notified := s.listen("second")
	if s.propose("first", "s", time.Minute, "wk")[0] != yes {
		t.Fatal("the first waiter does not hold")
	}
	if got := notified(); !slices.Equal(got, []string{"g"}) {
		t.Errorf("the next waiter is notified of %q, want of a grant", got)
	}
}

package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/internal/testbed"
)

// newJoins returns a pipe to a server of its own.
func newJoins(t *testing.T) (*redis.Client, *Pipe, Keys) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: testbed.Redis(t).Addr()})
	p := NewPipe(client)
	t.Cleanup(func() {
		p.Close(time.Second)
		_ = client.Close()
	})
	return client, p, Keys{Prefix: "test"}
}

func acquireCall(keys Keys, name, id string) *Call {
	c := keys.Call(Acquire, []string{keys.Main(name), "fence"}, nil, 60_000, "process 0 0 ", "xw")
	c.SetArg(0, c.Ticket(id, true))
	return c
}

// runJoined runs calls together, as far as they may be.
func runJoined(t *testing.T, p *Pipe, calls ...*Call) {
	t.Helper()
	for _, c := range calls {
		c.ctx, c.done, c.Join = t.Context(), make(chan struct{}), true
	}
	if _, err := p.run(p.only, calls); err != nil {
		t.Fatal(err)
	}
}

// allAnswered runs calls together, and waits until those that are left out are answered too.
func allAnswered(t *testing.T, p *Pipe, calls ...*Call) {
	t.Helper()
	runJoined(t, p, calls...)
	for _, c := range calls {
		if _, err := c.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestJoin: calls on the same keys are one run of a script, each gets its own answer and counts its own sendings, and those that
// the run leaves out are run alone. The server does not know the scripts at first.
func TestJoin(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	run := func(calls ...*Call) { runJoined(t, p, calls...) }
	acquire := func(name, id string) *Call { return acquireCall(keys, name, id) }
	release := func(name, id string) *Call {
		c := keys.Call(Release, []string{keys.Main(name)}, nil, 0)
		c.SetArg(0, c.Ticket(id, false))
		return c
	}
	want := func(c *Call, want string) {
		t.Helper()
		v, err := c.Wait()
		got := fmt.Sprint(v)
		if list, ok := v.([]any); ok {
			got = fmt.Sprint("queued ", list[3:])
		} else if _, ok := v.(string); ok {
			got = "granted"
		}
		if err != nil || got != want || c.Sent() != 1 {
			t.Errorf("%s %s: %s, sent %d times, %v; want %s, once", c.script.name, c.ticket.id, got, c.Sent(), err, want)
		}
	}
	a, b, other, c := acquire("name", "a"), acquire("name", "b"), acquire("other", "x"), acquire("name", "c")
	run(a, b, other, c)
	for c, answer := range map[*Call]string{a: "granted", b: "queued []", other: "granted", c: "queued [b]"} {
		want(c, answer)
	}
	if err := client.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	again, d := acquire("name", "b"), acquire("name", "d")
	run(again, d) // b is asked for again, which is not usual
	want(again, "queued []")
	want(d, "queued [c]")

	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	first, second, nobody := release("name", "a"), release("name", "b"), release("name", "nobody")
	run(first, second, nobody)
	want(first, "1")
	want(second, "1")
	want(nobody, "0")
	if stats := client.Info(t.Context(), "commandstats").Val(); !strings.Contains(stats, "cmdstat_eval:calls=1,") {
		t.Errorf("not one run of a script: %s", stats)
	}
	if holder := client.Get(t.Context(), keys.Main("name")).Val(); len(holder) < 8 || holder[7] != 'c' {
		t.Errorf("%q holds, want c", holder)
	}
}

// TestJoinAfterDeadWaiters: a run of the first who wait leaves no record of those who have died before, and none for ever.
func TestJoinAfterDeadWaiters(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	runJoined(t, p, acquireCall(keys, "name", "holds"))
	records := keys.Main("name") + ":t"
	client.HSet(t.Context(), records, "dead", "1 process 0 0 ") // its set has ended by itself
	runJoined(t, p, acquireCall(keys, "name", "a"), acquireCall(keys, "name", "b"))
	if ids := client.HKeys(t.Context(), records).Val(); len(ids) != 2 || slices.Contains(ids, "dead") {
		t.Errorf("records of %q, want of a and b", ids)
	}
	for _, end := range []string{":x", ":t", ":p"} {
		if client.PTTL(t.Context(), keys.Main("name")+end).Val() <= 0 {
			t.Errorf("%s does not end by itself if the process dies", end)
		}
	}
}

// TestJoinWithoutMemory: where memory is short, the holder that is asked for again is granted, as it is alone.
func TestJoinWithoutMemory(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	first := acquireCall(keys, "name", "a")
	runJoined(t, p, first)
	if err := client.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	again, other := acquireCall(keys, "name", "a"), acquireCall(keys, "name", "b")
	runJoined(t, p, again, other)
	if _, err := again.Wait(); err != nil {
		t.Errorf("the holder, asked for again: %v", err)
	}
	if _, err := other.Wait(); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("another ticket: %v", err)
	}
}

// stuck is a hook with which no request for one ticket alone is answered.
type stuck struct{ until chan struct{} }

func (h stuck) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h stuck) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Args()[1] == Acquire.hash {
			<-h.until
		}
		return next(ctx, cmd)
	}
}

func (h stuck) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLeftOutIsGivenUp: a call that a run for several has left out ends with its context, though it is not answered.
func TestLeftOutIsGivenUp(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	holds, again, waits := acquireCall(keys, "name", "a"), acquireCall(keys, "name", "a"), acquireCall(keys, "name", "b")
	runJoined(t, p, holds)
	until := make(chan struct{})
	t.Cleanup(func() { close(until) })
	client.AddHook(stuck{until})
	again.lag = p.only.lag
	runJoined(t, p, again, waits)
	ctx, cancel := context.WithCancelCause(t.Context())
	again.ctx = ctx
	gone := errors.New("its caller has gone")
	cancel(gone)
	end := make(chan error, 1)
	go func() {
		_, err := again.Wait()
		end <- err
	}()
	select {
	case err := <-end:
		if !errors.Is(err, gone) {
			t.Errorf("the call: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the call waits for its answer")
	}
}

// TestJoinWithABadFence: the first request alone overwrites a fence key that is no number.
func TestJoinWithABadFence(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	if err := client.Set(t.Context(), "fence", "none", 0).Err(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		a, b := acquireCall(keys, "name", "a"), acquireCall(keys, "name", "b")
		runJoined(t, p, a, b)
		_, errA := a.Wait()
		_, errB := b.Wait()
		if errA == nil && errB == nil {
			return
		}
	}
	t.Error("requests go on failing")
}

// TestJoinBesideAnotherLibrary: a run for several leaves what another library keeps in the main key as it is.
func TestJoinBesideAnotherLibrary(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	main := keys.Main("name")
	for kind, set := range map[string]func() error{
		"string": func() error { return client.Set(t.Context(), main, "theirs", time.Minute).Err() },
		"hash":   func() error { return client.HSet(t.Context(), main, "owner", "them").Err() },
	} {
		client.FlushAll(t.Context())
		if err := set(); err != nil {
			t.Fatal(err)
		}
		allAnswered(t, p, acquireCall(keys, "name", "a"), acquireCall(keys, "name", "b"))
		if got := client.Type(t.Context(), main).Val(); got != kind {
			t.Errorf("the main key is a %s, and was a %s", got, kind)
		}
		if v := client.Get(t.Context(), main).Val(); kind == "string" && v != "theirs" {
			t.Errorf("the main key has %q", v)
		}
	}
}

// TestTokensOfJoined: tokens of several requests in one run are larger than the last token and than the clock, as they are alone,
// and so is the next one.
func TestTokensOfJoined(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	for _, last := range []time.Duration{-time.Hour, time.Hour} { // against the clock
		client.FlushAll(t.Context())
		fence := time.Now().Add(last).UnixMicro()
		client.Set(t.Context(), "fence", fence, 0)
		floor := max(fence, time.Now().UnixMicro()-1)
		for _, ids := range []string{"ab", "cde", "f"} { // where nobody is, behind the holder, alone
			var calls []*Call
			for _, id := range strings.Split(ids, "") {
				calls = append(calls, acquireCall(keys, "name", id))
			}
			runJoined(t, p, calls...)
			for _, c := range calls {
				v, err := c.Wait()
				if list, queued := v.([]any); queued {
					v = list[0]
				}
				token, _ := strconv.ParseInt(fmt.Sprint(v), 10, 64)
				if err != nil || token <= floor {
					t.Errorf("the last token is %v from now: %s has %d after %d, %v", last, c.ticket.id, token, floor, err)
				}
				floor = token
			}
		}
	}
}

// TestJoinOfALapsedProcess: a process whose sign of life comes too late, with several tickets in one run, does not get its old
// ones back. One that is new where others wait makes those that are dead go, as it does alone.
func TestJoinOfALapsedProcess(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	main := keys.Main("name")
	acquire := func(process, id string) *Call {
		c := acquireCall(keys, "name", id)
		c.SetArg(2, process+" 0 0 ")
		return c
	}
	allAnswered(t, p, acquire("holds", "holder"))
	allAnswered(t, p, acquire("lapsed", "early"))
	allAnswered(t, p, acquire("other", "other"))
	client.ZAddXX(t.Context(), main+":p", redis.Z{Score: 1, Member: "lapsed"})
	allAnswered(t, p, acquire("lapsed", "late-1"), acquire("lapsed", "late-2"))
	if ids := client.ZRange(t.Context(), main+":x", 0, -1).Val(); !slices.Equal(ids, []string{"other", "late-1", "late-2"}) {
		t.Errorf("%q wait, want the other and the late ones", ids)
	}
	for i := range 10 {
		client.ZAdd(t.Context(), main+":p", redis.Z{Score: 1, Member: "dead-" + strconv.Itoa(i)})
	}
	allAnswered(t, p, acquire("new", "new-1"), acquire("new", "new-2"))
	if n := client.ZCard(t.Context(), main+":p").Val(); n != 3 {
		t.Errorf("the server knows %d processes, of which three wait", n)
	}
}

// TestJoinCountsAsALife: a process that queues again, when it would soon be taken for dead, lives from then on: alone, and with
// several tickets in one run.
func TestJoinCountsAsALife(t *testing.T) {
	t.Parallel()
	client, p, keys := newJoins(t)
	lives := keys.Main("name") + ":p"
	for n := range 2 {
		client.FlushAll(t.Context())
		allAnswered(t, p, acquireCall(keys, "name", "holder"))
		allAnswered(t, p, acquireCall(keys, "name", "early"))
		now := time.Now()
		client.ZAdd(t.Context(), lives, redis.Z{Score: float64(now.Add(2 * time.Second).UnixMicro()), Member: "process"})
		calls := []*Call{acquireCall(keys, "name", "a"), acquireCall(keys, "name", "b")}
		allAnswered(t, p, calls[n:]...)
		if left := time.UnixMicro(int64(client.ZScore(t.Context(), lives, "process").Val())).Sub(now); left < Liveness {
			t.Errorf("with %d tickets: it is taken for dead %v later, want %v", len(calls[n:]), left, Liveness)
		}
	}
}

// TestUnsentAfterItsCallerHasLeft: the call may have been sent empty, so an earlier request counts.
func TestUnsentAfterItsCallerHasLeft(t *testing.T) {
	c := acquireCall(Keys{Prefix: "test"}, "name", "a")
	c.sent.Store(1 | callerLeft)
	if c.unsent(); c.Sent() != 1 {
		t.Errorf("sent %d times, want once", c.Sent())
	}
}

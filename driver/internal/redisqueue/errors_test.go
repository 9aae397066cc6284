package redisqueue

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// reply is an error that a server has answered.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		err                  error
		unavailable, refused bool
	}{
		{reply("LOADING Redis is loading the dataset in memory"), true, true},
		{reply("CLUSTERDOWN The cluster is down"), true, true},
		{reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), true, true},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), true, true},
		{reply("ERR max number of clients reached"), true, true},
		{reply("READONLY You can't write against a read only replica. script: abc, on @user_script:3."), true, true},
		{reply("ERR Error running script (call to f_abc): @user_script:3: -READONLY You can't write against a read only replica."), true, true}, // 6.2
		{reply("OOM command not allowed when used memory > 'maxmemory'. script: abc, on @user_script:3."), true, true},
		{reply("ERR Script attempted to access a non local key in a cluster node script: abc, on @user_script:3."), true, false},
		{reply("NOAUTH Authentication required."), false, true},
		{reply("WRONGPASS invalid username-password pair or user is disabled."), false, true},
		{reply("NOPERM this user has no permissions to run the 'evalsha' command"), false, true},
		{reply("NOPERM User TASK has no permissions to run the 'evalsha' command"), false, true}, // 7.2
		{reply("NOPERM this user has no permissions to run the 'hset' command script: abc, on @user_script:3."), false, false},
		{reply("ERR user_script:9: the record of ticket id in locker:{TASK 1}:t is none of locker: remove that key script: abc, on @user_script:9."), false, false},
		{reply("ERR wrong number of arguments"), false, false},
		{redis.ErrPoolTimeout, true, false},
		{ErrReplicas, true, false},
		{errors.New("redis: cluster has no nodes"), true, false},
		{io.EOF, false, false}, // the core recognizes it
	} {
		if got := errors.Is(Unavailable(c.err), driver.ErrUnavailable); got != c.unavailable {
			t.Errorf("%q: unavailable: %v", c.err, got)
		}
		if Refused(c.err) != c.refused {
			t.Errorf("%q: refused: %v", c.err, Refused(c.err))
		}
	}
	if Unavailable(nil) != nil || !errors.Is(Unavailable(io.EOF), io.EOF) {
		t.Error("an error was lost")
	}
}

func TestEnded(t *testing.T) {
	why := errors.New("connection refused")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if err := Ended(ctx, nil); err != cause { //nolint:errorlint // the very same
		t.Errorf("without a reason: %v", err)
	}
	if err := Ended(ctx, why); !errors.Is(err, cause) || !errors.Is(err, why) {
		t.Errorf("with a reason: %v", err)
	}
}

// The reason why a server was not reached is the answer to another request: the one whose context has ended is unanswered.
func TestEndedIsUnanswered(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, why := range []error{reply("LOADING Redis is loading the dataset in memory"), reply("NOPERM this user has no permissions to run the 'subscribe' command")} {
		var sent Call
		sent.sent.Store(1)
		err := Ended(ctx, why)
		if IsReply(err) || Refused(err) || !sent.Unanswered(err) {
			t.Errorf("%v: is taken for the answer to the request", err)
		}
		if unavailable := errors.Is(Unavailable(why), driver.ErrUnavailable); errors.Is(err, driver.ErrUnavailable) != unavailable || !strings.Contains(err.Error(), why.Error()) {
			t.Errorf("%v: want the text of %v, unavailable: %v", err, why, unavailable)
		}
	}
}

// In a Cluster each script is given every key of the queue that it may touch, in
// the hash slot of the first.
func TestAllKeys(t *testing.T) {
	cluster, single := Keys{Prefix: "locker", Slots: true}, Keys{Prefix: "locker"}
	for _, name := range hard {
		main := cluster.Main(name)
		keys := cluster.All(main, cluster.Fence(main))
		if len(keys) != 10 || keys[0] != main || keys[1] != cluster.Fence(main) {
			t.Errorf("%q: %q", name, keys)
		}
		for _, key := range append(keys, cluster.Held(main, true)...) {
			if Slot(key) != Slot(main) {
				t.Errorf("%q and %q are in different slots", key, main)
			}
		}
		if got := single.All(main, "f"); len(got) != 2 {
			t.Errorf("%q: %q", name, got)
		}
		if len(cluster.Held(main, false)) != 1 || len(single.Held(main, true)) != 1 {
			t.Errorf("%q: more keys than the renewal needs", name)
		}
	}
	if strings.Contains(read("queue", queue)+read("acquire", queue)+read("release", queue)+read("heartbeat", queue)+read("break", queue)+read("inspect", queue), never) {
		t.Errorf("a script has a key that ends in %q", never)
	}
	for _, end := range beside { // each key that a script derives
		if !strings.Contains(read("queue", queue)+read("acquire", queue), "key .. '"+end+"'") {
			t.Errorf("no script has a key that ends in %q", end)
		}
	}
}

// TestUnansweredByARefusal: what refuses a new connection does not answer a request that was sent on another one.
func TestUnansweredByARefusal(t *testing.T) {
	for _, c := range []struct {
		err        error
		unanswered bool
	}{
		{nil, false},
		{io.EOF, true},
		{reply("LOADING Redis is loading the dataset in memory"), false},
		{reply("NOPERM this user has no permissions to run the 'evalsha' command"), false},
		{reply("NOPERM User u has no permissions to run the 'select' command"), true},
		{reply("WRONGPASS invalid username-password pair or user is disabled."), true},
		{reply("ERR max number of clients reached"), true},
	} {
		var sent, never Call
		sent.sent.Store(1)
		if got := sent.Unanswered(c.err); got != c.unanswered || never.Unanswered(c.err) {
			t.Errorf("%v: sent once: %v; never: %v", c.err, got, never.Unanswered(c.err))
		}
	}
}

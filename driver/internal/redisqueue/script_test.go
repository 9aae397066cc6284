package redisqueue_test

import (
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
	v, err := s.pipe.Do(s.t.Context(), c)
	if err != nil {
		s.t.Fatal(err)
	}
	return v
}

func (s *script) acquire(id, form string, ttl time.Duration) any {
	s.t.Helper()
	return s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)},
		id, ttl.Milliseconds(), "channel 0 0 0 ", form))
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
// nothing when it arrives, whatever the order, and no key stays.
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
	if keys := s.client.Keys(t.Context(), "*").Val(); len(keys) != 1 {
		t.Errorf("%q stay, want the last token", keys)
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
			s.run(redisqueue.NewCall(redisqueue.Acquire, []string{s.main, s.keys.Fence(s.main)}, id, 60_000, channel+" 0 0 0 ", form))
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

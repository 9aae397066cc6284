package redisline_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisline"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestStrayRequests: a release that knows of requests on their way has each of
// them do nothing when it arrives, whatever the order, and nothing stays.
func TestStrayRequests(t *testing.T) {
	srv := testbed.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	defer client.Close()
	pipe := redisline.NewPipe(client)
	defer pipe.Close(time.Second)
	keys := redisline.Keys{Prefix: "stray"}
	main := keys.Main("name")
	acquire := func(id string) any {
		t.Helper()
		c := redisline.NewCall(redisline.Acquire, []string{main, keys.Fence(main)}, id, 60000, "channel 0 0 0 ", "xw")
		return run(t, pipe, c)
	}
	release := func(id string, strays int) any {
		t.Helper()
		return run(t, pipe, redisline.NewCall(redisline.Release, []string{main}, id, strays))
	}
	gone, none := any(int64(-1)), any(int64(0))

	if got := release("a", 2); got != none {
		t.Errorf("release before its requests: %v", got)
	}
	for range 2 {
		if got := acquire("a"); got != gone {
			t.Errorf("a request after its release: %v", got)
		}
	}
	if got := acquire("b"); got == gone || got == none {
		t.Errorf("another ticket: %v", got)
	}
	if got := release("b", 2); got != any(int64(1)) {
		t.Errorf("release between its requests: %v", got)
	}
	if got := acquire("b"); got != gone {
		t.Errorf("the other request: %v", got)
	}
	if n := client.DBSize(t.Context()).Val(); n != 1 {
		t.Errorf("%d keys stay, want the last token: %q", n, client.Keys(t.Context(), "*").Val())
	}
}

func run(t *testing.T, p *redisline.Pipe, c *redisline.Call) any {
	t.Helper()
	v, err := p.Do(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

package redisqueue

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/internal/testbed"
)

// TestErrorBesideAcknowledged: the error of a call is not that of the others in its pipeline, nor
// of the replicas that have acknowledged these.
func TestErrorBesideAcknowledged(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: testbed.Redis(t).Addr()})
	defer client.Close()
	p := NewPipe(client)
	defer p.Close(time.Second)
	call := func(s *Script, keys ...string) *Call {
		c := NewCall(s, keys)
		c.Durable = true // no replicas are wanted, and none are there
		return c
	}
	if _, err := p.Do(t.Context(), call(Protocol, "key")); err != nil {
		t.Fatal(err)
	}
	known, unknown := call(Protocol, "key"), call(Inspect, "key")
	p.exec(client, []*Call{known, unknown}, false)
	if !redis.HasErrorPrefix(unknown.cmd.Err(), "NOSCRIPT") {
		t.Fatalf("the server knows the script: %v", unknown.cmd.Err())
	}
	if err := known.cmd.Err(); err != nil {
		t.Error(err)
	}
	if err := known.Acked(); err != nil {
		t.Error(err)
	}
}

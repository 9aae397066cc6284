package redisqueue_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestGivenUp: calls that a silent server does not answer end soon after their
// contexts, and later calls get their own answers, however many were given up.
func TestGivenUp(t *testing.T) {
	srv := testbed.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	pipe := redisqueue.NewPipe(client)
	t.Cleanup(func() {
		pipe.Close(5 * time.Second)
		_ = client.Close()
	})
	keys := redisqueue.Keys{Prefix: "test"}
	acquire := func(ctx context.Context, i int) (any, error) {
		main := keys.Main(fmt.Sprint(i))
		c := redisqueue.NewCall(redisqueue.Acquire, []string{main, keys.Fence(main)}, nil, 60_000, "channel 0 0 ", "x")
		c.SetArg(0, c.Ticket(fmt.Sprint("id", i), true))
		return pipe.Do(ctx, c)
	}
	const callers = 100
	// all makes all callers ask at once.
	all := func(ctx context.Context, want error) {
		var group sync.WaitGroup
		for i := range callers {
			group.Go(func() {
				_, ok := granted(acquire(ctx, i))
				if _, err := acquire(ctx, i); !errors.Is(err, want) || ok != (want == nil) {
					t.Errorf("call %d: granted %v, %v; want %v", i, ok, err, want)
				}
			})
		}
		group.Wait()
	}
	all(t.Context(), nil)
	srv.Pause()
	cause := errors.New("given up")
	ctx, cancel := context.WithCancelCause(t.Context())
	const after = 50 * time.Millisecond
	time.AfterFunc(after, func() { cancel(cause) })
	if took := testbed.Elapsed(func() { all(ctx, cause) }); took > after+300*time.Millisecond {
		t.Errorf("given up after %v, want %v", took, after)
	}
	srv.Resume()
	tokens := make(map[string]bool)
	for i := range callers {
		token, ok := granted(acquire(t.Context(), i))
		if !ok || tokens[token] {
			t.Errorf("call %d is answered with %q", i, token)
		}
		tokens[token] = true
	}
}

// blocking is a caller's context that blocks whoever asks it for its end, once it is armed.
type blocking struct {
	context.Context
	armed   atomic.Bool
	unblock chan struct{}
}

func (b *blocking) Err() error {
	if b.armed.Load() {
		<-b.unblock
	}
	return nil
}

// TestBlockingContext: the context of a caller that blocks holds up no other call.
func TestBlockingContext(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	pipe := redisqueue.NewOrderedPipe(client, []*redisqueue.Script{redisqueue.Release})
	blocks := &blocking{Context: t.Context(), unblock: make(chan struct{})}
	t.Cleanup(func() {
		close(blocks.unblock)
		pipe.Close(5 * time.Second)
		_ = client.Close()
	})
	release := func() *redisqueue.Call {
		return redisqueue.NewCall(redisqueue.Release, []string{redisqueue.Keys{Prefix: "test"}.Main("blocking")}, "id", 0)
	}
	answered, queued := make(chan error, 1), make(chan struct{})
	pipe.Send(release(), func(any, error) { <-queued })
	pipe.Start(blocks, release())
	pipe.Send(release(), func(_ any, err error) { answered <- err })
	blocks.armed.Store(true)
	close(queued)
	select {
	case err := <-answered:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a call waits for the context of another one's caller")
	}
}

// TestServerGone: calls that share a pipeline all fail with the reason when there is no
// server to connect to.
func TestServerGone(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr()})
	pipe := redisqueue.NewPipe(client)
	t.Cleanup(func() {
		pipe.Close(5 * time.Second)
		_ = client.Close()
	})
	srv.Kill()
	keys := redisqueue.Keys{Prefix: "test"}
	var calls []*redisqueue.Call
	for i := range 100 {
		c := redisqueue.NewCall(redisqueue.Release, []string{keys.Main(fmt.Sprint(i))}, "id", 0)
		pipe.Start(t.Context(), c)
		calls = append(calls, c)
	}
	for i, c := range calls {
		var refused *net.OpError
		if v, err := c.Wait(); !errors.As(err, &refused) {
			t.Errorf("call %d: %v, %v; want that the connection was refused", i, v, err)
		}
	}
}

// TestAskedAgain: a caller that asks again because a call failed does not get the error of
// that call.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1, ReadTimeout: 2 * time.Second})
	pipe := redisqueue.NewOrderedPipe(client, []*redisqueue.Script{redisqueue.Acquire})
	t.Cleanup(func() {
		pipe.Close(5 * time.Second)
		_ = client.Close()
	})
	main := redisqueue.Keys{Prefix: "test"}.Main("a")
	acquire := func(id string) *redisqueue.Call {
		c := redisqueue.NewCall(redisqueue.Acquire, []string{main, redisqueue.Keys{Prefix: "test"}.Fence(main)}, nil, 60_000, "channel 0 0 ", "x")
		c.SetArg(0, c.Ticket(id, true))
		return c
	}
	srv.Pause()
	answer := make(chan error, 1)
	pipe.Send(acquire("first"), func(_ any, err error) {
		if err == nil {
			t.Error("a paused server has answered")
		}
		srv.Resume()
		pipe.Send(acquire("again"), func(_ any, err error) { answer <- err })
	})
	if err := <-answer; err != nil {
		t.Errorf("the server is back, and the answer is %v", err)
	}
}

// granted reads an answer that is a token.
func granted(v any, err error) (string, bool) {
	token, ok := v.(string)
	return token, ok && err == nil
}

// TestOrderOfUnknownScripts: a server that knows only some of the scripts, such as those that have not changed since another
// version of the program, runs the calls of an ordered pipe in their order.
func TestOrderOfUnknownScripts(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
	newPipe := func(scripts ...*redisqueue.Script) *redisqueue.Pipe {
		pipe := redisqueue.NewOrderedPipe(client, scripts)
		t.Cleanup(func() { pipe.Close(5 * time.Second) })
		return pipe
	}
	t.Cleanup(func() { _ = client.Close() })
	keys := redisqueue.Keys{Prefix: "test"}
	main := keys.Main("a")
	release := func() *redisqueue.Call { return redisqueue.NewCall(redisqueue.Release, []string{main}, "id", 0) }
	if _, err := newPipe(redisqueue.Release).Do(t.Context(), release()); err != nil {
		t.Fatal(err)
	}
	pipe := newPipe(redisqueue.Acquire, redisqueue.Release)
	srv.Pause()
	answers := make(chan error, 3)
	for _, c := range []*redisqueue.Call{ // the first is sent alone, and the others together
		release(), redisqueue.NewCall(redisqueue.Acquire, []string{main, keys.Fence(main)}, "id", 60_000, "channel 0 0 ", "x"), release(),
	} {
		pipe.Send(c, func(_ any, err error) { answers <- err })
	}
	srv.Resume()
	for range 3 {
		if err := <-answers; err != nil {
			t.Fatal(err)
		}
	}
	if v := client.Get(t.Context(), main).Val(); v != "" {
		t.Errorf("released, and there is %q", v)
	}
}

// TestRunTwice: where a server knows only some of the scripts, a release that is run a second time, behind the script that was not
// known, has removed its ticket all the same.
func TestRunTwice(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: srv.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	keys := redisqueue.Keys{Prefix: "test"}
	acquire := func(name string) *redisqueue.Call {
		main := keys.Main(name)
		return redisqueue.NewCall(redisqueue.Acquire, []string{main, keys.Fence(main)}, "id", 60_000, "channel 0 0 ", "x")
	}
	release := func(name string) *redisqueue.Call {
		return redisqueue.NewCall(redisqueue.Release, []string{keys.Main(name)}, "id", 0)
	}
	other := redisqueue.NewPipe(client)
	t.Cleanup(func() { other.Close(5 * time.Second) })
	for _, c := range []*redisqueue.Call{acquire("a"), release("b")} {
		if _, err := other.Do(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	pipe := redisqueue.NewOrderedPipe(client, []*redisqueue.Script{redisqueue.Inspect, redisqueue.Release})
	t.Cleanup(func() { pipe.Close(5 * time.Second) })
	srv.Pause()
	answers := make(chan any, 3)
	for _, c := range []*redisqueue.Call{ // the first is sent alone, and the others together
		release("b"), redisqueue.NewCall(redisqueue.Inspect, []string{keys.Main("b")}), release("a"),
	} {
		pipe.Send(c, func(v any, err error) {
			if err != nil {
				v = err
			}
			answers <- v
		})
	}
	srv.Resume()
	<-answers
	<-answers
	if v := <-answers; v != int64(1) {
		t.Errorf("released with %v, want 1", v)
	}
}

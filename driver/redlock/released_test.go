package redlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// A ticket that is released while its number is too small is not asked for again under a larger one.
func TestReleasedBeforeNextNumber(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		x := listening(t, patient)
		scripts := func(node int) string {
			_, after, _ := strings.Cut(x.direct[node].Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:calls=")
			calls, _, _ := strings.Cut(after, ",")
			return calls
		}
		var before []string
		fence := time.Now().Add(2 * time.Hour).UnixMicro()
		for node, c := range x.direct {
			c.HSet(t.Context(), x.d.fences(), bucket("name"), fence)
			if wait {
				c.Set(t.Context(), x.key(), "theirs", time.Minute) // it would be queued
			}
			before = append(before, scripts(node))
			x.ways[node].HoldReplies(true)
		}
		r := driver.Request{Name: "name", ID: "try", TTL: time.Minute, Wait: wait}
		acquired, released := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := x.d.Acquire(context.Background(), r)
			acquired <- err
		}()
		x.until("asked for", func() bool { return scripts(0) != before[0] && scripts(1) != before[1] && scripts(2) != before[2] })
		go func() { released <- x.d.Release(context.Background(), r.Hold(0)) }()
		x.until("to be released", func() bool {
			x.d.mu.Lock()
			defer x.d.mu.Unlock()
			return x.d.tickets[r.ID].released
		})
		for _, way := range x.ways {
			way.HoldReplies(false)
		}
		if err := <-acquired; !errors.Is(err, driver.ErrLost) {
			t.Errorf("wait=%t: acquired: %v, want ErrLost", wait, err)
		}
		if err := <-released; !errors.Is(err, driver.ErrLost) {
			t.Errorf("wait=%t: released: %v, want ErrLost", wait, err)
		}
		for node, c := range x.direct {
			x.answered(node)
			if x.waits(node, r.ID) {
				t.Errorf("wait=%t: node %d has the ticket after its release", wait, node)
			}
			if last, err := c.HGet(t.Context(), x.d.fences(), bucket("name")).Int64(); err != nil || last != fence {
				t.Errorf("wait=%t: node %d has had the ticket after its release", wait, node)
			}
		}
	}
}

// A ticket that is released while its process compares protocol versions is not asked for afterwards.
func TestReleasedBeforeProtocolIsKnown(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	var clients []redis.UniversalClient
	for _, c := range x.direct {
		clients = append(clients, c)
	}
	d, err := New(clients)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	compares, known := make(chan struct{}), make(chan struct{})
	go func() {
		_ = d.protocol.Do(t.Context(), func(context.Context) (string, error) {
			close(compares)
			<-known
			return d.protocol.Own(), nil
		})
	}()
	<-compares
	r := driver.Request{Name: "name", ID: "try", TTL: time.Minute}
	acquired := make(chan error, 1)
	ctx := &begun{Context: t.Context(), asked: make(chan struct{})}
	go func() {
		_, err := d.Acquire(ctx, r)
		acquired <- err
	}()
	<-ctx.asked
	if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("released: %v, want ErrLost", err)
	}
	close(known)
	if err := <-acquired; !errors.Is(err, driver.ErrLost) {
		t.Errorf("acquired: %v, want ErrLost", err)
	}
}

// begun is a context that notes when it is waited for.
type begun struct {
	context.Context //nolint:containedctx // it is one

	once  sync.Once
	asked chan struct{}
}

func (b *begun) Done() <-chan struct{} {
	b.once.Do(func() { close(b.asked) })
	return b.Context.Done()
}

package redlock_test

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

const prefix = "test"

// keyOf is the main key of a name.
func keyOf(name string) string { return prefix + ":{" + name + "}" }

func client(t *testing.T, address string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), address+"?prefix="+prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func take(t *testing.T, c *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	k, err := c.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t *testing.T, k *locker.Lock) {
	t.Helper()
	if err := k.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// eventually polls a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10s", what)
		}
	}
}

// queue begins to wait and returns once the queue has n tickets.
func queue(t *testing.T, c *locker.Client, name string, n int, opts ...locker.Option) <-chan *locker.Lock {
	t.Helper()
	got := make(chan *locker.Lock, 1)
	go func() {
		defer close(got)
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if k, err := c.Acquire(ctx, name, opts...); err == nil {
			got <- k
		}
	}()
	eventually(t, "a queued ticket", func() bool {
		queue, err := c.Inspect(context.Background(), name)
		return err == nil && len(queue.Tickets) == n
	})
	return got
}

func granted(t *testing.T, got <-chan *locker.Lock) *locker.Lock {
	t.Helper()
	select {
	case k := <-got:
		if k == nil {
			t.Fatal("Acquire has failed")
		}
		return k
	case <-time.After(10 * time.Second):
		t.Fatal("not granted within 10s")
	}
	return nil
}

// heldOn counts the nodes on which a name's main key is there.
func heldOn(t *testing.T, cs []*goredis.Client, name string) int {
	t.Helper()
	n := 0
	for _, c := range cs {
		if v, err := c.Exists(context.Background(), keyOf(name)).Result(); err == nil {
			n += int(v)
		}
	}
	return n
}

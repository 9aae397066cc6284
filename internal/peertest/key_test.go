package peertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestSameName has redsync and ours use the same name, as a program does that is
// moved from the one to the other. With the key's form in the URL they exclude each
// other both ways; without it both hold, as the driver's documentation says.
func TestSameName(t *testing.T) {
	srv := testbed.SharedRedis(t)
	c := goredis9.NewClient(&goredis9.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	for params, shares := range map[string]bool{"?prefix=same": false, "?prefix=same-old&key_form=*": true} {
		name := fmt.Sprintf("job-%016x", rand.Uint64())
		theirs := &redsyncPeer{redsync.New(goredis.NewPool(c)).NewMutex(name, redsync.WithExpiry(time.Minute), redsync.WithTries(1))}
		ours, err := locker.Open(t.Context(), srv.URL()+params)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ours.Close() })

		k, err := ours.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if err := theirs.lock(t.Context()); (err == nil) == shares {
			t.Errorf("%s: redsync locks what we hold: %v", params, err)
		} else if err == nil {
			_ = theirs.unlock(t.Context())
		}
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		if err := theirs.lock(t.Context()); err != nil {
			t.Fatal(err)
		}
		k, err = ours.TryAcquire(t.Context(), name)
		if shares != errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("%s: we try what redsync holds: %v", params, err)
		}
		if err == nil {
			_ = k.Release(t.Context())
		}
		_ = theirs.unlock(t.Context())
	}
}

// TestRedisson plants what a lock of Redisson is, a hash at the lock's name: it is
// refused, with words.
func TestRedisson(t *testing.T) {
	srv := testbed.SharedRedis(t)
	c := goredis9.NewClient(&goredis9.Options{Addr: srv.Addr()})
	t.Cleanup(func() { _ = c.Close() })
	name := fmt.Sprintf("redisson-%016x", rand.Uint64())
	c.HSet(t.Context(), name, "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1)
	ours, err := locker.Open(t.Context(), srv.URL()+"?prefix=redisson&key_form=*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ours.Close() })
	_, err = ours.TryAcquire(t.Context(), name)
	if !errors.Is(err, locker.ErrNotAcquired) || !strings.Contains(err.Error(), "another library's lock") {
		t.Errorf("a try for a lock of Redisson: %v", err)
	}
	_, err = ours.Acquire(t.Context(), name, locker.WithWait(300*time.Millisecond))
	if !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("a wait for a lock of Redisson: %v", err)
	}
	t.Log(err)
	if n := c.HLen(t.Context(), name).Val(); n != 1 {
		t.Error("the lock of Redisson was touched")
	}
}

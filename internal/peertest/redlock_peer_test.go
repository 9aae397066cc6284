package peertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

// redlockFixture is one name on five nodes, ours and redsync's.
func redlockFixture(t *testing.T, opts ...redlock.Option) (fixture, *testbed.Ensemble) {
	nodes := testbed.RedisN(t, 5)
	var clients []goredis9.UniversalClient
	var pools []redsyncredis.Pool
	for _, addr := range nodes.Addrs() {
		// Without retries, so that a node that is down costs a test no time.
		c := goredis9.NewClient(&goredis9.Options{Addr: addr, MaxRetries: -1})
		t.Cleanup(func() { _ = c.Close() })
		clients = append(clients, c)
		pools = append(pools, goredis.NewPool(c))
	}
	d, err := redlock.New(clients, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	ours := locker.New(d)
	t.Cleanup(func() { _ = ours.Close() })
	name := fmt.Sprintf("redlock-%016x", rand.Uint64())
	theirs := redsync.New(pools...).NewMutex(d.Key(name), redsync.WithExpiry(10*time.Second), redsync.WithTries(1))
	return fixture{t.Context(), name, ours, &redsyncPeer{theirs}}, nodes
}

// TestRedlockOldKey: on keys that are the names themselves, as redsync has them, both
// keep each other out.
func TestRedlockOldKey(t *testing.T) {
	f, _ := redlockFixture(t, redlock.WithKeyForm("*"))
	if theirs := f.peer.(*redsyncPeer).mutex.Name(); theirs != f.name {
		t.Fatalf("redsync's key is %q, want %q", theirs, f.name)
	}
	k := f.acquire(t)
	if err := f.peer.lock(f.ctx); err == nil {
		t.Fatal("redsync locks what we hold")
	}
	if err := k.Release(f.ctx); err != nil {
		t.Fatal(err)
	}
	redsyncLocks(t, f)
	if _, err := f.ours.TryAcquire(f.ctx, f.name); !errors.Is(err, locker.ErrNotAcquired) {
		t.Fatalf("we acquire what redsync holds: %v", err)
	}
	if err := f.peer.unlock(f.ctx); err != nil {
		t.Fatal(err)
	}
}

func TestRedlockKeepsThemOut(t *testing.T) {
	for what, opts := range map[string][]locker.Option{
		"exclusive": nil, "shared": {locker.Shared()}, "permit": {locker.Limit(3)},
	} {
		t.Run(what, func(t *testing.T) {
			f, nodes := redlockFixture(t)
			k := f.acquire(t, opts...)
			nodes.Members[0].Kill() // a minority changes nothing
			if err := f.peer.lock(f.ctx); err == nil {
				t.Fatal("redsync locks what we hold")
			}
			if err := k.Release(f.ctx); err != nil {
				t.Fatal(err)
			}
			redsyncLocks(t, f)
			if err := f.peer.unlock(f.ctx); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// redsyncLocks locks with redsync. Our release returns when a majority has it,
// and redsync does not wait.
func redsyncLocks(t *testing.T, f fixture) {
	t.Helper()
	var err error
	for range 20 {
		if err = f.peer.lock(f.ctx); err == nil {
			return
		}
	}
	t.Fatalf("redsync, after our release: %v", err)
}

func TestRedlockIsKeptOut(t *testing.T) {
	f, nodes := redlockFixture(t)
	redsyncLocks(t, f)
	nodes.Members[4].Kill()
	for _, opts := range [][]locker.Option{nil, {locker.Shared()}, {locker.Limit(3)}} {
		if _, err := f.ours.TryAcquire(f.ctx, f.name, opts...); !errors.Is(err, locker.ErrNotAcquired) {
			t.Fatalf("we acquire what redsync holds: %v", err)
		}
	}
	got := make(chan error, 1)
	go func() {
		k, err := f.ours.Acquire(f.ctx, f.name, locker.WithWait(20*time.Second))
		if err == nil {
			err = k.Release(context.Background())
		}
		got <- err
	}()
	f.await(t, 2) // redsync and one of ours
	if err := f.peer.unlock(f.ctx); err != nil {
		t.Fatal(err)
	}
	var err error
	took := testbed.Elapsed(func() { err = <-got })
	if err != nil || took > 2*time.Second {
		t.Fatalf("granted %v after redsync's release: %v", took, err)
	}
}

// TestRedlockTogether has ours and redsync contend for one name.
func TestRedlockTogether(t *testing.T) {
	f, _ := redlockFixture(t)
	const rounds = 50
	inside := make(chan struct{}, 1)
	enter := func(who string) {
		select {
		case inside <- struct{}{}:
			<-inside
		default:
			t.Errorf("%s is not alone", who)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range rounds {
			k, err := f.ours.Acquire(f.ctx, f.name)
			if err != nil {
				t.Error(err)
				return
			}
			enter("ours")
			if err := k.Release(f.ctx); err != nil {
				t.Error(err)
			}
		}
	}()
	for locked := 0; ; {
		select {
		case <-done:
			t.Logf("redsync had it %d times while ours had it %d times", locked, rounds)
			return
		default:
		}
		if f.peer.lock(f.ctx) == nil {
			locked++
			enter("redsync")
			if err := f.peer.unlock(f.ctx); err != nil {
				t.Error(err)
			}
		}
	}
}

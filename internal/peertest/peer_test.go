package peertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis9 "github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is another client's lock on one key.
type peer interface {
	lock(ctx context.Context) error // errHeld when somebody else has it
	unlock(ctx context.Context) error
}

var errHeld = errors.New("held by somebody else")

type redislockPeer struct {
	client *redislock.Client
	key    string
	held   *redislock.Lock
}

func (p *redislockPeer) lock(ctx context.Context) (err error) {
	p.held, err = p.client.Obtain(ctx, p.key, 10*time.Second, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return errHeld
	}
	return err
}

func (p *redislockPeer) unlock(ctx context.Context) error { return p.held.Release(ctx) }

type redsyncPeer struct{ mutex *redsync.Mutex }

func (p *redsyncPeer) lock(ctx context.Context) error {
	err := p.mutex.TryLockContext(ctx)
	var taken *redsync.ErrTaken
	if errors.As(err, &taken) || errors.Is(err, redsync.ErrFailed) {
		return errHeld
	}
	return err
}

func (p *redsyncPeer) unlock(ctx context.Context) error {
	ok, err := p.mutex.UnlockContext(ctx)
	if err == nil && !ok {
		return errors.New("unlock: not held")
	}
	return err
}

// fixture is one name on a real server, ours and the peer's.
type fixture struct {
	ctx  context.Context
	name string
	ours *locker.Client
	peer peer
}

// forms are the keys for which tests run: ours, and the name itself, as it was
// without locker.
var forms = map[string]func(prefix string) []redis.Option{
	"our-key": func(prefix string) []redis.Option { return []redis.Option{redis.WithPrefix(prefix)} },
	"old-key": func(prefix string) []redis.Option {
		return []redis.Option{redis.WithPrefix(prefix), redis.WithKeyForm("*")}
	},
}

// forPeers runs a test with each of the other clients, on each form of keys.
func forPeers(t *testing.T, test func(t *testing.T, f fixture)) {
	for form, opts := range forms {
		t.Run(form, func(t *testing.T) { forPeersAt(t, opts(form), test) })
	}
}

func forPeersAt(t *testing.T, opts []redis.Option, test func(t *testing.T, f fixture)) {
	srv := testbed.SharedRedis(t)
	peers := map[string]func(c *goredis9.Client, key string) peer{
		"redislock": func(c *goredis9.Client, key string) peer {
			return &redislockPeer{client: redislock.New(c), key: key}
		},
		"redsync": func(c *goredis9.Client, key string) peer {
			return &redsyncPeer{redsync.New(goredis.NewPool(c)).NewMutex(key, redsync.WithExpiry(10*time.Second))}
		},
	}
	for name, open := range peers {
		t.Run(name, func(t *testing.T) {
			c := goredis9.NewClient(&goredis9.Options{Addr: srv.Addr()})
			t.Cleanup(func() { _ = c.Close() })
			d, err := redis.New(c, opts...)
			if err != nil {
				t.Fatal(err)
			}
			ours := locker.New(d)
			t.Cleanup(func() { _ = ours.Close() })
			lock := fmt.Sprintf("peer-%016x", rand.Uint64())
			test(t, fixture{t.Context(), lock, ours, open(c, d.Key(lock))})
		})
	}
}

// TestOursKeepsThemOut holds with ours, exclusively, shared and as one of
// several permits.
func TestOursKeepsThemOut(t *testing.T) {
	for what, opts := range map[string][]locker.Option{
		"exclusive": nil, "shared": {locker.Shared()}, "permit": {locker.Limit(3)},
	} {
		t.Run(what, func(t *testing.T) {
			forPeers(t, func(t *testing.T, f fixture) {
				first := f.acquire(t, opts...)
				locks := []*locker.Lock{first}
				if len(opts) > 0 {
					locks = append(locks, f.acquire(t, opts...))
				}
				for _, k := range locks {
					if err := f.peer.lock(f.ctx); !errors.Is(err, errHeld) {
						t.Fatalf("the peer locks what we hold: %v", err)
					}
					if err := k.Release(f.ctx); err != nil {
						t.Fatal(err)
					}
				}
				if err := f.peer.lock(f.ctx); err != nil {
					t.Fatalf("after our release: %v", err)
				}
				if err := f.peer.unlock(f.ctx); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// TestTheirsKeepsUsOut holds with theirs.
func TestTheirsKeepsUsOut(t *testing.T) {
	forPeers(t, func(t *testing.T, f fixture) {
		if err := f.peer.lock(f.ctx); err != nil {
			t.Fatal(err)
		}
		for _, opts := range [][]locker.Option{nil, {locker.Shared()}, {locker.Limit(3)}} {
			if _, err := f.ours.TryAcquire(f.ctx, f.name, opts...); !errors.Is(err, locker.ErrNotAcquired) {
				t.Fatalf("we acquire what the peer holds: %v", err)
			}
		}
		queue, err := f.ours.Inspect(f.ctx, f.name)
		if err != nil || len(queue.Tickets) != 1 || queue.Tickets[0].Owner != redis.Foreign || !queue.Tickets[0].Held {
			t.Fatalf("inspect: %+v, %v", queue, err)
		}
		if err := f.peer.unlock(f.ctx); err != nil {
			t.Fatal(err)
		}
		if err := f.acquire(t).Release(f.ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWaitForThem waits in the queue for a peer, which notifies nobody of its
// release.
func TestWaitForThem(t *testing.T) {
	forPeers(t, func(t *testing.T, f fixture) {
		if err := f.peer.lock(f.ctx); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 2)
		for _, opts := range [][]locker.Option{nil, {locker.Shared()}} {
			go func() {
				k, err := f.ours.Acquire(f.ctx, f.name, opts...)
				if err == nil {
					err = k.Release(f.ctx)
				}
				got <- err
			}()
		}
		f.await(t, 3) // the peer and two of ours
		if err := f.peer.unlock(f.ctx); err != nil {
			t.Fatal(err)
		}
		took := testbed.Elapsed(func() {
			for range 2 {
				if err := <-got; err != nil {
					t.Fatal(err)
				}
			}
		})
		if took > time.Second {
			t.Errorf("granted %v after the peer's release", took)
		}
	})
}

func (f fixture) acquire(t *testing.T, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := f.ours.Acquire(f.ctx, f.name, append(opts, locker.WithWait(5*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// await waits until n tickets are queued.
func (f fixture) await(t *testing.T, n int) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		queue, err := f.ours.Inspect(f.ctx, f.name)
		if err == nil && len(queue.Tickets) == n {
			return
		}
		if time.Since(begun) > 10*time.Second {
			t.Fatalf("the queue is %+v, %v; want %d tickets", queue, err, n)
		}
	}
}

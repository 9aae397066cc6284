package etcd_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// openClient opens a Locker that is closed with the test.
func openClient(t *testing.T, url string, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// register is the resource that a lock protects: it sees every holder.
type register struct {
	mu      sync.Mutex
	token   uint64
	holders int
	grants  atomic.Int64
}

func (r *register) enter(t *testing.T, k *locker.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders++; r.holders > 1 {
		t.Errorf("%d holders at a time, at token %d", r.holders, k.Token())
	}
	if k.Token() <= r.token {
		t.Errorf("token %d was granted after %d", k.Token(), r.token)
	}
	r.token = k.Token()
	r.grants.Add(1)
}

func (r *register) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders--
}

// queueUp queues n waiters behind a holder, each with a client of its own. It
// returns a function that waits until all have held the lock.
func queueUp(t *testing.T, url, name string, n int, reg *register) (wait func() error) {
	t.Helper()
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for range n {
		queued := make(chan struct{})
		var once sync.Once
		c := openClient(t, url, locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				once.Do(func() { close(queued) })
			}
		}))
		wg.Go(func() {
			k, err := c.Acquire(t.Context(), name)
			if err == nil {
				reg.enter(t, k)
				reg.leave()
				err = k.Release(context.WithoutCancel(t.Context()))
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
		<-queued
	}
	return func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

// The leader of three members is killed while a lock is held and others wait:
// the holder keeps the lock, nobody else is granted, and the queue moves on after
// the release, in order.
func TestLeaderKilled(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how requests, renewals and watches get over an election")
	t.Parallel()
	e := testbed.EtcdCluster(t)
	const name, waiters = "leader", 8
	var reg register
	holder := openClient(t, e.URL(), locker.WithDefaults(locker.WithTTL(10*time.Second)))
	k, err := holder.Acquire(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	reg.enter(t, k)
	wait := queueUp(t, e.URL(), name, waiters, &reg)

	killed := e.Leader()
	killed.Kill()
	e.Leader() // there is another

	// The holder renews through the change: it holds for longer than its TTL.
	select {
	case <-k.Done():
		t.Fatalf("the holder lost its lock with the leader: %v", k.Err())
	case <-time.After(12 * time.Second):
	}
	if got := reg.grants.Load(); got != 1 {
		t.Fatalf("%d grants while the first holds", got)
	}
	reg.leave()
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	if err := wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d waiters went through %v after the release", waiters, time.Since(released).Round(time.Millisecond))
	killed.Start()
}

// Contenders go on while one leader after another is killed and comes back.
func TestLeadersKilledUnderLoad(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how requests, renewals and watches get over an election")
	t.Parallel()
	e := testbed.EtcdCluster(t)
	var (
		reg  register
		wg   sync.WaitGroup
		stop = make(chan struct{})
	)
	for range 6 {
		c := openClient(t, e.URL(), locker.WithDefaults(locker.WithTTL(10*time.Second)))
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				k, err := c.Acquire(ctx, "load")
				cancel()
				if err != nil {
					continue // the leader has just gone: the put may be unanswered
				}
				reg.enter(t, k)
				time.Sleep(time.Millisecond)
				reg.leave()
				_ = k.Release(context.Background()) // perhaps unanswered
			}
		})
	}
	for range 3 {
		before := reg.grants.Load()
		l := e.Leader()
		l.Kill()
		waitFor(t, 30*time.Second, "grants after the leader was killed", func() bool { return reg.grants.Load() > before+50 })
		l.Start()
	}
	close(stop)
	wg.Wait()
	t.Logf("%d grants", reg.grants.Load())
}

func waitFor(t *testing.T, bound time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %v", what, bound)
		}
	}
}

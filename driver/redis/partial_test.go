package redis_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// masters are those of a Cluster, each behind a proxy, for one client.
type masters struct {
	client  *goredis.ClusterClient
	proxies map[string]*testbed.Proxy // by address
}

func mastersOf(t *testing.T, cluster *testbed.Ensemble) *masters {
	t.Helper()
	m := &masters{proxies: make(map[string]*testbed.Proxy)}
	for _, s := range cluster.Members {
		m.proxies[s.Addr()] = s.Proxy(t)
	}
	m.client = goredis.NewClusterClient(&goredis.ClusterOptions{
		Addrs: cluster.Addrs(), ReadTimeout: time.Second, DialTimeout: time.Second, MaintNotificationsConfig: quiet,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, m.proxies[addr].Addr())
		},
	})
	t.Cleanup(func() { _ = m.client.Close() })
	return m
}

// nameOn returns a new name, which is on a master.
func (m *masters) nameOn(t *testing.T, d *redis.Driver, addr string) string {
	t.Helper()
	for {
		name := newName()
		master, err := m.client.MasterForKey(t.Context(), d.Key(name))
		if err != nil {
			t.Fatal(err)
		}
		if master.Options().Addr == addr {
			return name
		}
	}
}

// TestSilentMaster: while one master of a Cluster is silent, whichever it is, a wait for a name of another one does not end
// as if the store were, and a wait for a name of its own does. Names of the others are waited for and granted as ever.
func TestSilentMaster(t *testing.T) {
	t.Parallel()
	cluster := testbed.RedisCluster(t)
	m := mastersOf(t, cluster)
	d, err := redis.New(m.client)
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	holder := process(t, cluster.URL())
	for _, silent := range cluster.Addrs() {
		ends, names, held := make(map[string]chan error), make(map[string]string), make(map[string]*locker.Lock)
		for _, addr := range cluster.Addrs() {
			name := m.nameOn(t, d, addr)
			names[addr], held[addr] = name, take(t, holder, name)
			ends[addr] = make(chan error, 1)
			go func() {
				_, err := l.Acquire(t.Context(), name, locker.WithWait(8*time.Second))
				ends[addr] <- err
			}()
			await(t, holder, name, 2)
		}
		m.proxies[silent].Cut()
		for _, addr := range cluster.Addrs() {
			err := <-ends[addr]
			if !errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrUnavailable) != (addr == silent) {
				t.Errorf("%s is silent, and the wait for a name of %s ends with %v", silent, addr, err)
			}
		}
		for addr, name := range names {
			if addr != silent {
				got := acquiring(t, l, name, locker.WithWait(20*time.Second))
				await(t, holder, name, 2)
				release(t, held[addr])
				k, _ := within(t, got, 2*time.Second)
				release(t, k)
			}
		}
		m.proxies[silent].Heal()
	}
}

// held holds the requests of a client up while it is on, but not its subscription.
type held struct {
	on    atomic.Bool
	ended context.Context
}

func (h *held) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h *held) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		h.wait()
		return next(ctx, cmd)
	}
}

func (h *held) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		h.wait()
		return next(ctx, cmds)
	}
}

func (h *held) wait() {
	if h.on.Load() {
		<-h.ended.Done()
	}
}

// TestSilentWhileConfirming: a wait that ends while the server does not answer the confirmation of its grant says so.
func TestSilentWhileConfirming(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	client := dial(t, srv.Addr())
	ended, end := context.WithCancel(context.Background())
	defer end()
	h := &held{ended: ended}
	client.AddHook(h)
	joined := make(chan struct{})
	l := locker.New(openOver(t, inBatches{client}), locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			close(joined)
		}
	}))
	defer func() {
		end()
		_ = l.Close()
	}()
	name := newName()
	k := take(t, process(t, srv.URL()), name)
	got := make(chan error, 1)
	go func() {
		_, err := l.Acquire(t.Context(), name, locker.WithMinHold(time.Second), locker.WithWait(4*time.Second)) // is confirmed at once
		got <- err
	}()
	<-joined
	h.on.Store(true)
	release(t, k)
	if err := <-got; !errors.Is(err, locker.ErrNotAcquired) || !errors.Is(err, locker.ErrUnavailable) {
		t.Error(err)
	}
}

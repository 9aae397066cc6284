package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestSentinelFailover: a lock that a replica has acknowledged outlives the
// primary, its waiter keeps waiting, and tokens go on growing.
func TestSentinelFailover(t *testing.T) {
	notShort(t)
	t.Parallel()
	s := testbed.RedisSentinel(t)
	url := s.URL() + "?replicas=1"
	holder := process(t, url)
	waiter, queued := waiting(t, url)
	name := newName()
	k := take(t, holder, name, locker.WithTTL(30*time.Second))
	got := acquiring(t, waiter, name, locker.WithTTL(30*time.Second))
	<-queued

	s.Leader().Kill()
	until(t, func() error {
		_, err := holder.Inspect(t.Context(), name)
		return err
	})
	if err := k.Err(); err != nil {
		t.Fatalf("the holder after the failover: %v", err)
	}
	if _, err := waiter.TryAcquire(t.Context(), name); !errors.Is(err, locker.ErrNotAcquired) {
		t.Fatalf("acquired after the failover what is held: %v", err)
	}
	select {
	case <-got:
		t.Fatal("the waiter was granted beside the holder")
	default:
	}
	// The one replica is the primary now, and has none: a grant cannot be made safe.
	free, err := holder.Acquire(t.Context(), newName())
	if !errors.Is(err, redis.ErrReplicas) {
		t.Errorf("acquired without a replica: %v, %v", free, err)
	}
	t.Log(err)

	s.Members[0].Start() // comes back as a replica
	plain := process(t, s.URL())
	until(t, func() error {
		info := dial(t, s.Leader().Addr()).Info(t.Context(), "replication").Val()
		if !strings.Contains(info, "connected_slaves:1") {
			return errors.New("no replica")
		}
		return nil
	})
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	next, took := within(t, got, 5*time.Second)
	t.Logf("granted %v after the release", took)
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	release(t, next)
	release(t, take(t, plain, name))
}

// TestReplicas: a grant that too few replicas acknowledge fails, and its ticket is
// released.
func TestReplicas(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	d, err := redis.New(dial(t, srv.Addr()), redis.WithReplicas(1, 50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	name := newName()
	_, err = l.Acquire(t.Context(), name)
	if !errors.Is(err, redis.ErrReplicas) || !strings.Contains(err.Error(), "0 of 1") {
		t.Errorf("acquired without a replica: %v", err)
	}
	if queue, err := l.Inspect(t.Context(), name); err != nil || len(queue.Tickets) != 0 {
		t.Errorf("the queue is %+v, %v", queue, err)
	}
}

// TestCluster: names spread over the masters, and what stays is one key for
// each slot in use at the most.
func TestCluster(t *testing.T) {
	t.Parallel()
	cluster := testbed.RedisCluster(t)
	l, other := process(t, cluster.URL()), process(t, cluster.URL())
	var names []string
	for i := range 30 {
		name := newName()
		if i%5 == 0 {
			name = "}{" + name // as hard as it gets for a hash tag
		}
		names = append(names, name)
		k := take(t, l, name)
		got := acquiring(t, other, name)
		await(t, l, name, 2)
		release(t, k)
		k, _ = within(t, got, time.Second)
		if i == 0 {
			if list, err := l.List(t.Context()); err != nil || len(list) != 1 || list[0] != name {
				t.Errorf("list: %q, %v", list, err)
			}
		}
		release(t, k)
	}
	total := 0
	for _, m := range cluster.Members {
		keys, _ := lasting(t, dial(t, m.Addr()), "*")
		if len(keys) == 0 {
			t.Errorf("%s was never asked", m.Addr())
		}
		for _, key := range keys {
			switch {
			case strings.HasPrefix(key, "locker:fence:{"):
				total++
			case key != "locker:protocol":
				t.Errorf("%q stays", key)
			}
		}
	}
	if total > len(names) {
		t.Errorf("%d keys stay of %d names", total, len(names))
	}
}

// TestClusterFailover: a lock that a replica has outlives its master, and so
// does the queue; other masters' locks are not held up meanwhile.
func TestClusterFailover(t *testing.T) {
	notShort(t)
	t.Parallel()
	cluster := testbed.RedisCluster(t, testbed.Replicas(1))
	url := cluster.URL() + "?replicas=1"
	holder := process(t, url)
	waiter, queued := waiting(t, cluster.URL())
	name, elsewhere := newName(), newName()
	c := goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: cluster.Addrs()})
	t.Cleanup(func() { _ = c.Close() })
	d, err := redis.New(c)
	if err != nil {
		t.Fatal(err)
	}
	master := func(name string) string {
		m, err := c.MasterForKey(t.Context(), d.Key(name))
		if err != nil {
			t.Fatal(err)
		}
		return m.Options().Addr
	}
	for master(elsewhere) == master(name) {
		elsewhere = newName()
	}
	k := take(t, holder, name, locker.WithTTL(time.Minute))
	got := acquiring(t, waiter, name, locker.WithTTL(time.Minute))
	<-queued
	for _, m := range cluster.Members {
		if m.Addr() == master(name) {
			m.Kill()
			break
		}
	}
	begun := time.Now()
	release(t, take(t, waiter, elsewhere))
	t.Logf("elsewhere: %v", time.Since(begun))
	// A handle is released only once, so wait until a server answers.
	until(t, func() error {
		_, err := holder.Inspect(t.Context(), name)
		return err
	})
	t.Logf("failed over within %v", time.Since(begun))
	release(t, k)
	next, took := within(t, got, 10*time.Second)
	t.Logf("granted %v after the release", took)
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	release(t, next)
}

// TestRing: a Ring is refused.
func TestRing(t *testing.T) {
	t.Parallel()
	ring := goredis.NewRing(&goredis.RingOptions{Addrs: map[string]string{"a": "127.0.0.1:1"}})
	defer ring.Close()
	if _, err := redis.New(ring); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a driver on a Ring: %v", err)
	}
}

// TestACL: a user who has only the rights in the package comment can do all.
func TestACL(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	admin := dial(t, srv.Addr())
	rules := []any{"ACL", "SETUSER", "app", "on", ">secret", "resetkeys", "resetchannels", "~locker:*", "&locker:*", "-@all"}
	for _, c := range strings.Fields(redis.ACLCommands) {
		rules = append(rules, "+"+c)
	}
	if err := admin.Do(t.Context(), rules...).Err(); err != nil {
		t.Fatal(err)
	}
	url := "redis://app:secret@" + srv.Addr()
	l, other := process(t, url), process(t, url)
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	for _, opts := range [][]locker.Option{nil, {locker.Limit(2)}} {
		name := newName()
		k := take(t, l, name, append(opts, locker.WithTTL(3*time.Second))...)
		got := acquiring(t, other, name)
		await(t, l, name, 2)
		if err := k.Extend(t.Context(), 4*time.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := l.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		release(t, k)
		k, _ = within(t, got, time.Second)
		if err := other.Break(t.Context(), name, k.Token()); err != nil {
			t.Fatal(err)
		}
		<-k.Done()
	}
	log, err := admin.Do(t.Context(), "ACL", "LOG").Slice()
	if err != nil || len(log) != 0 {
		t.Errorf("the server has refused: %v, %v", log, err)
	}
	denied := process(t, "redis://app:secret@"+srv.Addr()+"?prefix=other")
	begun := time.Now()
	if _, err := denied.Acquire(t.Context(), newName()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("acquired under a prefix that is not allowed: %v", err)
	} else if time.Since(begun) > 2*time.Second {
		t.Errorf("refused after %v: %v", time.Since(begun), err)
	}
}

// TestContextEndsWhileCut: go-redis does not watch a context while it reads;
// the driver returns all the same, and one dead connection does not hold up
// others.
func TestContextEndsWhileCut(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	p := srv.Proxy(t)
	l := process(t, p.URL())
	name := newName()
	for range 10 {
		release(t, take(t, l, name)) // the server is known to be quick
	}
	p.Cut()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begun := time.Now()
		_, err := l.TryAcquire(ctx, newName())
		cancel()
		// The core may take a second to undo each.
		if took := time.Since(begun); err == nil || took > 1500*time.Millisecond {
			t.Errorf("acquired through a cut: %v after %v", err, took)
		}
	}
	p.Heal()
	until(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		k, err := l.TryAcquire(ctx, name)
		if err == nil {
			err = k.Release(ctx)
		}
		return err
	})
	// All that was sent during the cut has arrived, and left nothing.
	c := dial(t, srv.Addr())
	until(t, func() error {
		keys, err := c.Keys(t.Context(), "*").Result()
		if len(keys) > 2 { // the last token, and the protocol version
			return fmt.Errorf("%q, %w", keys, err)
		}
		return err
	})
}

// TestLateRequest: an Acquire that arrives after its own Release makes no
// ticket, however often it was sent.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	p := srv.Proxy(t)
	late, err := open(t.Context(), p.URL(), "late")
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	warm := driver.Request{Name: newName(), ID: "warm-1", TTL: time.Minute}
	if _, err := late.Acquire(t.Context(), warm); err != nil {
		t.Fatal(err)
	}
	if err := late.Release(t.Context(), warm.Hold(0)); err != nil {
		t.Fatal(err)
	}
	r := driver.Request{Name: newName(), ID: "late-1", TTL: time.Minute}
	p.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := late.Acquire(ctx, r); err == nil || errors.Is(err, driver.ErrNotAcquired) {
		t.Fatalf("acquired through a cut: %v", err)
	}
	p.Heal()
	until(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := late.Release(ctx, r.Hold(0))
		if errors.Is(err, driver.ErrLost) {
			return nil
		}
		return err
	})
	time.Sleep(100 * time.Millisecond) // for what is still on its way
	if queue, err := late.Inspect(t.Context(), r.Name); err != nil || len(queue) != 0 {
		t.Errorf("a request that was given up has made a ticket: %+v, %v", queue, err)
	}
}

// TestReplicaSaysNothing: a former primary that a failover has made a replica may
// not know what the present one has granted, so its answers do not count.
func TestReplicaSaysNothing(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	d, err := open(t.Context(), srv.URL(), "replica")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	held := driver.Request{Name: newName(), ID: "held-1", TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := dial(t, srv.Addr()).SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	unknown := driver.Hold{Name: newName(), ID: "unknown-1"}
	again := held
	again.ID = "again-1"
	for verb, f := range map[string]func() error{
		"acquire": func() error { _, err := d.Acquire(t.Context(), again); return err },
		"release": func() error { return d.Release(t.Context(), unknown) },
		"renew":   func() error { return d.Renew(t.Context(), unknown, time.Minute) },
		"break":   func() error { return d.(driver.Breaker).Break(t.Context(), unknown.Name, 1) },
	} {
		err := f()
		if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: a replica has said %v", verb, err)
		}
	}
}

// TestReplicaNotifiesNobody: a former primary that a failover has made a replica publishes for those who have
// listened to it, and refuses to write. So it notifies nobody of what it has not done.
func TestReplicaNotifiesNobody(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	opened, err := open(t.Context(), srv.URL(), "notifies")
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	d := opened.(interface {
		driver.Driver
		driver.Breaker
		driver.LossNotifier
	})
	lost, granted, queued := make(chan driver.Hold, 1), make(chan error, 1), make(chan struct{})
	d.NotifyLoss(func(h driver.Hold, _ error) { lost <- h })
	held := driver.Request{Name: newName(), ID: "held-1", TTL: time.Minute, Wait: true}
	g, err := d.Acquire(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	waits := held
	waits.ID, waits.Renewed, waits.Joined = "waits-1", true, func() { close(queued) }
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		_, err := d.Acquire(ctx, waits)
		granted <- err
	}()
	<-queued
	if err := dial(t, srv.Addr()).SlaveOf(t.Context(), "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	if err := d.Break(t.Context(), held.Name, g.Token); err == nil {
		t.Error("a replica has broken a ticket")
	}
	if err := d.Release(t.Context(), held.Hold(g.Token)); err == nil {
		t.Error("a replica has released a ticket")
	}
	select {
	case h := <-lost:
		t.Errorf("the holder was notified of a loss that was refused: %+v", h)
	case err := <-granted:
		t.Errorf("the waiter was notified of a grant that was refused: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
}

// TestClockSetBack: tokens go on growing when the server's clock is behind the
// last one.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	l := process(t, srv.URL())
	last := uint64(time.Now().Add(time.Hour).UnixMicro())
	if err := dial(t, srv.Addr()).Set(t.Context(), "locker:fence", last, 0).Err(); err != nil {
		t.Fatal(err)
	}
	for _, opts := range [][]locker.Option{nil, {locker.Shared()}, nil} {
		k := take(t, l, newName(), opts...)
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		release(t, k)
	}
}

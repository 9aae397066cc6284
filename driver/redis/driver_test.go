package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestNothingStays: after hundreds of names the store holds the last token and the
// protocol version.
func TestNothingStays(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	l := process(t, srv.URL())
	for range 100 {
		name := newName()
		k := take(t, l, name)
		got := acquiring(t, l, name)
		await(t, l, name, 2)
		release(t, k)
		k, _ = within(t, got, time.Second)
		release(t, k)
		release(t, take(t, l, name, locker.Limit(2)))
	}
	keys, tombstones := lasting(t, dial(t, srv.Addr()), "*")
	slices.Sort(keys)
	if !slices.Equal(keys, []string{"locker:fence", "locker:protocol"}) || tombstones > 30 {
		t.Errorf("the server holds %q, and %d tombstones of 100 names", keys, tombstones)
	}
}

// calls counts the scripts that a server has run.
func calls(t *testing.T, c *goredis.Client) (n int) {
	t.Helper()
	info, err := c.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"evalsha", "eval"} {
		var some int
		_, _ = fmt.Sscanf(info["Commandstats"]["cmdstat_"+verb], "calls=%d", &some)
		n += some
	}
	return n
}

// TestCommands: without contention a cycle is two requests; with 256 waiters of
// eight processes a grant is three.
func TestCommands(t *testing.T) {
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	var ls []*locker.Client
	for range 8 {
		l := process(t, srv.URL())
		release(t, take(t, l, newName())) // scripts loaded
		ls = append(ls, l)
	}
	c.ConfigResetStat(t.Context())
	for range 100 {
		release(t, take(t, ls[0], "free"))
	}
	if n := calls(t, c); n != 200 {
		t.Errorf("100 cycles without contention took %d requests", n)
	}

	const waiters = 256
	k := take(t, ls[0], "busy")
	done := make(chan error, waiters)
	for i := range waiters {
		go func() {
			k, err := ls[i%len(ls)].Acquire(t.Context(), "busy")
			if err == nil {
				err = k.Release(t.Context())
			}
			done <- err
		}()
	}
	await(t, ls[0], "busy", waiters+1)
	begun := time.Now() // heartbeats count from the reset
	c.ConfigResetStat(t.Context())
	release(t, k)
	for range waiters {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begun)
	n := calls(t, c)
	t.Logf("%d grants in %v took %d requests after joining", waiters, took, n)
	// Each was granted, confirmed and released; heartbeats are by time.
	if beats := 8 * (1 + int(took/time.Second)); n > 2*waiters+1+beats {
		t.Errorf("%d grants took %d requests after joining, want 2 each", waiters, n)
	}
}

// TestScriptFlush: a server that has forgotten the scripts gets them again.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	l := process(t, srv.URL())
	name := newName()
	for range 3 {
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		k := take(t, l, name)
		got := acquiring(t, l, name)
		await(t, l, name, 2)
		if err := c.ScriptFlush(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		release(t, k)
		k, _ = within(t, got, time.Second)
		release(t, k)
	}
}

// TestClientKill: connections that the server closes, the subscription's too,
// cost neither the place in the queue nor the grant.
func TestClientKill(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	holder, waiter := process(t, srv.URL()), process(t, srv.URL(), noRejoin(t))
	name := newName()
	k := take(t, holder, name)
	got := acquiring(t, waiter, name)
	await(t, holder, name, 2)
	for _, kind := range []string{"normal", "pubsub"} {
		if err := c.ClientKillByFilter(t.Context(), "TYPE", kind).Err(); err != nil && kind != "normal" {
			t.Fatal(err)
		}
	}
	release(t, k) // perhaps before the waiter listens again
	k, took := within(t, got, time.Second)
	t.Logf("granted after %v", took)
	release(t, k)
}

// noRejoin fails the test when a waiter loses its place.
func noRejoin(t *testing.T) locker.ClientOption {
	return locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventRejoined {
			t.Errorf("%s: a waiter has lost its place: %v", e.Name, e.Err)
		}
	})
}

// TestServerEmptied: a server that comes back without anything has lost the
// holder and the queue; the waiter queues again and tokens go on growing.
func TestServerEmptied(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	holder := process(t, srv.URL())
	waiter, queued := waiting(t, srv.URL())
	name := newName()
	k := take(t, holder, name, locker.WithTTL(3*time.Second))
	got := acquiring(t, waiter, name)
	<-queued
	srv.Kill()
	srv.Start()
	next, took := within(t, got, 5*time.Second)
	t.Logf("granted %v after the restart", took)
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
	<-k.Done()
	if err := k.Release(t.Context()); !errors.Is(err, locker.ErrLost) {
		t.Errorf("release of what the server lost: %v", err)
	}
	release(t, next)
}

// TestKeyDeleted: an operator deletes the holder's key; the queue moves on
// within a heartbeat, and the holder finds out at its next renewal.
func TestKeyDeleted(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	d, _ := redis.New(c)
	for _, opts := range [][]locker.Option{nil, {locker.Shared()}} {
		holder, waiter := process(t, srv.URL()), process(t, srv.URL())
		name := newName()
		k := take(t, holder, name, append(opts, locker.WithTTL(3*time.Second))...)
		got := acquiring(t, waiter, name)
		await(t, holder, name, 2)
		if err := c.Del(t.Context(), d.Key(name)).Err(); err != nil {
			t.Fatal(err)
		}
		next, took := within(t, got, time.Second+load)
		t.Logf("granted %v after the deletion", took)
		soon(t, k.Done(), 2*time.Second, "the holder knows")
		release(t, next)
	}
}

// TestShortLeaseAfterWait: the provisional lease of a waiter that is granted lasts
// longer than a short lease; the lease does not.
func TestShortLeaseAfterWait(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	for _, shared := range []bool{false, true} {
		d, err := open(t.Context(), srv.URL(), redis.DefaultPrefix)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		r := driver.Request{Name: newName(), ID: "short-1", Shared: shared, TTL: 300 * time.Millisecond, Wait: true}
		holder := driver.Request{Name: r.Name, ID: "holder-1", TTL: time.Minute}
		if _, err := d.Acquire(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		r.Joined = func() { got <- d.Release(t.Context(), holder.Hold(0)) }
		begun := time.Now()
		if _, err := d.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		queue, err := d.Inspect(t.Context(), r.Name)
		over := len(queue) == 0 && time.Since(begun) > r.TTL // on a busy machine
		if err != nil || !over && (len(queue) != 1 || queue[0].Remaining > r.TTL) {
			t.Errorf("the queue is %+v, %v; want a lease of %v", queue, err, r.TTL)
		}
		left, err := dial(t, srv.Addr()).PTTL(t.Context(), d.(*redis.Driver).Key(r.Name)).Result()
		if err != nil || left > r.TTL {
			t.Errorf("the key lives for %v, %v; want %v", left, err, r.TTL)
		}
	}
}

// TestLongestLease: a TTL that means "for ever" is no short one.
func TestLongestLease(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), testbed.SharedRedis(t).URL(), redis.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const forever, century = time.Duration(math.MaxInt64), 100 * 365 * 24 * time.Hour
	for _, shared := range []bool{false, true} {
		for _, ttl := range []time.Duration{forever, time.Minute} {
			r := driver.Request{Name: newName(), ID: newName(), Shared: shared, TTL: ttl}
			if _, err := d.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if err := d.Renew(t.Context(), r.Hold(0), forever); err != nil {
				t.Error(err)
			}
			queue, err := d.Inspect(t.Context(), r.Name)
			if err != nil || len(queue) != 1 || queue[0].Remaining < century {
				t.Errorf("shared %v, TTL %v: the queue is %+v, %v", shared, ttl, queue, err)
			}
			if err := d.Release(t.Context(), r.Hold(0)); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestLeaseEnd: the first waiter's process looks when the lease ends, not at
// its next heartbeat.
func TestLeaseEnd(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	d, err := open(t.Context(), srv.URL(), redis.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, shared := range []bool{false, true} {
		// Heartbeats are a second apart: the next one is long after the end.
		dead := driver.Request{Name: newName(), ID: newName(), Shared: shared, TTL: 1200 * time.Millisecond}
		begun := time.Now()
		if _, err := d.Acquire(t.Context(), dead); err != nil {
			t.Fatal(err)
		}
		r := driver.Request{Name: dead.Name, ID: newName(), TTL: time.Minute, Wait: true}
		var g driver.Grant
		measured := testbed.Elapsed(func() { g, err = d.Acquire(t.Context(), r) })
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(begun)
		t.Logf("a lease of %v ended after %v", dead.TTL, took)
		if took < dead.TTL || measured > dead.TTL+200*time.Millisecond+load {
			t.Errorf("a lease of %v ended after %v, of which %v were its waiter's", dead.TTL, took, measured)
		}
		if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBreak: the holder is notified at once, though it has never waited.
func TestBreak(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	for _, opts := range [][]locker.Option{nil, {locker.Shared()}} {
		holder, other := process(t, srv.URL()), process(t, srv.URL())
		if err := holder.Ping(t.Context()); err != nil { // it listens: what is published before, it does not hear
			t.Fatal(err)
		}
		name := newName()
		k := take(t, holder, name, opts...)
		got := acquiring(t, other, name)
		await(t, other, name, 2)
		if err := other.Break(t.Context(), name, k.Token()); err != nil {
			t.Fatal(err)
		}
		soon(t, k.Done(), time.Second, "the holder is notified")
		next, _ := within(t, got, time.Second)
		if err := other.Break(t.Context(), name, k.Token()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("break of what is broken: %v", err)
		}
		release(t, next)
	}
}

// TestRetriedRelease: go-redis sends a release again if its answer was lost. The
// ticket is gone by then, and that is no loss.
func TestRetriedRelease(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	p := srv.Proxy(t)
	d, err := open(t.Context(), p.URL(), "retried")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := driver.Request{Name: newName(), ID: "retried-1", TTL: 10 * time.Second}
	if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release of nothing: %v", err) // and the server knows the script now
	}
	if _, err := d.Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	lost := p.LoseReply(r.ID)
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Errorf("release whose first answer was lost: %v", err)
	}
	select {
	case <-lost: // when the proxy has reset the connection
	case <-time.After(10 * time.Second):
		t.Error("no answer was lost")
	}
	if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a second release: %v", err)
	}
}

// TestRetriedBreak: the same of a break. The ticket that the first sending has removed was
// there.
func TestRetriedBreak(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	p := srv.Proxy(t)
	holder, d := openAt(t, srv.URL()), openAt(t, p.URL())
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	g, err := holder.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Break(t.Context(), r.Name, g.Token+1); !errors.Is(err, driver.ErrLost) {
		t.Errorf("break of nothing: %v", err) // and the server knows the script now
	}
	lost := p.LoseReply(strconv.FormatUint(g.Token, 10))
	if err := d.Break(t.Context(), r.Name, g.Token); err != nil {
		t.Errorf("break whose first answer was lost: %v", err)
	}
	select {
	case <-lost: // when the proxy has reset the connection
	case <-time.After(10 * time.Second):
		t.Error("no answer was lost")
	}
	if err := d.Break(t.Context(), r.Name, g.Token); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a second break: %v", err)
	}
}
